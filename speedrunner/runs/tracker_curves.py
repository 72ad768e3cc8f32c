"""Export a run's curves to TensorBoard and Weights & Biases.

The values are those of the tables of results: `test/` has the columns of the table `seeds`, `sleep/` those of
`sleeps`, each with the same name. The notes are those of the report. The curves are copies. If a tracker
fails, a warning is printed once and the run continues.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from speedrunner.config.optional import optional
from speedrunner.config.schema import Config, to_mapping
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.runs.plan import Sleep, Step, Wake
from speedrunner.store.process_notes import caveats, process_lines
from speedrunner.store.run_data import RunData
from speedrunner.store.rundir import RunDirectory

Tracked = Literal["none", "tensorboard", "wandb", "both"]


class Tracker(Protocol):
    """A target for curves."""

    def log(self, rollouts: int, values: Mapping[str, float]) -> None:
        """Add points after this number of training rollouts."""

    def note(self, text: str) -> None:
        """Add notes on the results, as Markdown."""

    def close(self) -> None:
        """Write buffered points."""


class TensorBoard:
    """An event file in `RUN/tensorboard`, written without TensorFlow."""

    def __init__(self, path: Path) -> None:
        writer = _module("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._event = _module("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._summary = _module("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        self._file = writer.EventFileWriter(str(path / "tensorboard"))

    def log(self, rollouts: int, values: Mapping[str, float]) -> None:
        """Add points after this number of training rollouts."""
        points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(rollouts, self._summary(value=points))

    def note(self, text: str) -> None:
        """Add notes on the results, as Markdown."""
        texts = _module("tensorboard.plugins.text.summary_v2", "tensorboard")
        self._add(0, texts.text_pb("notes", text))

    def _add(self, rollouts: int, summary: Any) -> None:
        self._file.add_event(self._event(wall_time=time.time(), step=rollouts, summary=summary))
        self._file.flush()

    def close(self) -> None:
        """Write buffered points."""
        self._file.close()


class WeightsAndBiases:
    """An offline run in `RUN/wandb`, which the user can upload with `wandb sync`; nothing is sent
    from here."""

    def __init__(self, path: Path, config: Config) -> None:
        wandb = _module("wandb", "wandb")
        self._run = wandb.init(
            mode="offline",
            project="speedrunner",
            id=hashlib.sha256(str(path).encode()).hexdigest()[:16],  # one W&B run, also after a resume
            resume="allow",
            name=path.name,
            dir=str(path),
            config=to_mapping(config),
            reinit="create_new",  # several runs in one process
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True
            ),
        )

    def log(self, rollouts: int, values: Mapping[str, float]) -> None:
        """Add points after this number of training rollouts."""
        self._run.log({"rollouts": rollouts, **values})

    def note(self, text: str) -> None:
        """Add notes on the results, as Markdown."""
        self._run.notes = text

    def close(self) -> None:
        """Write buffered points."""
        self._run.finish()


def require(tracked: Tracked) -> None:
    """Raise `NotInstalled` if the package of a tracker is missing."""
    for name in _names(tracked):
        _module(name, name)


@contextmanager
def curves(
    config: Config, directory: RunDirectory, say: Callable[[str], None]
) -> Iterator[Callable[[Step], None]]:
    """Open the trackers that `logging` names. Yield a function to call with each finished step.

    Args:
        say: called with a line if a tracker fails.
    """
    trackers: dict[str, Tracker] = {}

    def attempt(name: str, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:
            trackers.pop(name, None)
            say(f"warning: stopped writing curves for {name}: {type(error).__name__}: {error}")

    def begin(name: str) -> None:
        path = directory.path.resolve()
        trackers[name] = TensorBoard(path) if name == "tensorboard" else WeightsAndBiases(path, config)
        processes = directory.read().processes
        if lines := [*caveats(processes), *process_lines(processes)]:
            trackers[name].note("\n".join(f"- {line}" for line in lines))

    def finished(step: Step) -> None:
        for name, tracker in list(trackers.items()):
            attempt(name, partial(add, tracker, step))

    def add(tracker: Tracker, step: Step) -> None:
        tracker.log(*points(step, directory.read()))

    for name in _names(config.logging):
        attempt(name, partial(begin, name))
    try:
        yield finished
    finally:
        for name, tracker in list(trackers.items()):
            attempt(name, tracker.close)


def points(step: Step, run: RunData) -> tuple[int, dict[str, float]]:
    """Return the number of training rollouts after a finished step, and the points that it adds to the
    curves. Unknown values have none.

    Means are over scored episodes. Tokens and USD are those of all roles, from the ledger.
    """
    from speedrunner.results.checkpoints import MEANS, frame_checkpoints, frame_episodes, frame_sleeps

    (costs,) = run_costs([run], [price_book(run)])
    if isinstance(step, Sleep):
        sleeps = frame_sleeps(run, costs).set_index("sleep")
        policy = run.policies.load(step.number)
        found = sleeps.loc[step.number].drop(["rollouts", "error"]).to_dict()
        found |= {"skills": len(policy.skills), "public": sum(skill.public for skill in policy.skills)}
        return int(sleeps.loc[: step.number, "rollouts"].sum()), _known("sleep", found)
    if isinstance(step, Wake):
        frame = frame_episodes([row for row in run.episodes if row.episode in step.tasks], costs)
        scored = frame[frame["score"].notna()]
        found = scored[[*MEANS, "skill_calls"]].mean().to_dict()
        return step.first + len(step.tasks), _known("train", {"unscored": len(frame) - len(scored)} | found)
    found = frame_checkpoints(run, costs).loc[step.checkpoint].drop(["policy", "whole"]).to_dict()
    return step.checkpoint, _known("test", found)


def _known(phase: str, values: Mapping[Any, Any]) -> dict[str, float]:
    """Return the values that are known, named by their phase."""
    import pandas

    return {f"{phase}/{name}": float(value) for name, value in values.items() if pandas.notna(value)}


def _names(tracked: Tracked) -> tuple[str, ...]:
    return {"none": (), "both": ("tensorboard", "wandb")}.get(tracked, (tracked,))


def _module(name: str, tracker: str) -> Any:
    """Import a tracker's module, which has the same name as its package."""
    return optional(name, tracker, f"logging={tracker}")
