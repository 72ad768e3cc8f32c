"""Export a run's curves to TensorBoard and Weights & Biases.

The curves are copies. If a tracker fails, a warning is printed once and the run continues.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from serving.usage import Prices
from speedrunner.config.schema import Config, to_mapping
from speedrunner.optional import optional
from speedrunner.runs.plan import Sleep, Step, Wake
from speedrunner.store.records import EpisodeRow
from speedrunner.store.run_data import RunData
from speedrunner.store.rundir import RunDirectory

Tracked = Literal["none", "tensorboard", "wandb", "both"]


class Tracker(Protocol):
    """A target for curves."""

    def log(self, rollouts: int, values: Mapping[str, float]) -> None:
        """Add points after this number of training rollouts."""

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
        summary = self._summary(value=points)
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

    def close(self) -> None:
        """Write buffered points."""
        self._run.finish()


def require(tracked: Tracked) -> None:
    """Raise `NotInstalled` if the package of a tracker is missing."""
    for name in _names(tracked):
        _module(name, name)


@contextmanager
def curves(
    config: Config, directory: RunDirectory, prices: Prices, say: Callable[[str], None]
) -> Iterator[Callable[[Step], None]]:
    """Open the trackers that `logging` names. Yield a function to call with each finished step.

    Args:
        prices: prices of the actor's tokens.
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

    def finished(step: Step) -> None:
        for name, tracker in list(trackers.items()):
            attempt(name, partial(add, tracker, step))

    def add(tracker: Tracker, step: Step) -> None:
        tracker.log(*points(step, directory.read(), prices))

    for name in _names(config.logging):
        attempt(name, partial(begin, name))
    try:
        yield finished
    finally:
        for name, tracker in list(trackers.items()):
            attempt(name, tracker.close)


def points(step: Step, run: RunData, prices: Prices) -> tuple[int, dict[str, float]]:
    """Return the number of training rollouts after a finished step, and the points that it adds to the
    curves.

    Means are over scored episodes; USD are the price of their tokens at the actor's prices.
    """
    if isinstance(step, Sleep):
        records = run.sleeps
        record = next(each for each in records if each.sleep == step.number)
        policy = run.policies.load(step.number)
        refused = sum(edit.error is not None for edit in record.edits)
        found = {"accepted": len(record.edits) - refused, "refused": refused, "seconds": record.seconds}
        found |= {"skills": len(policy.skills), "public": sum(skill.public for skill in policy.skills)}
        if record.prefix is not None:
            found["prefix_common"] = record.prefix.common
        rollouts = sum(each.rollouts for each in records if each.sleep <= step.number)
        return rollouts, {f"sleep/{name}": float(value) for name, value in found.items()}
    rows = [row for row in run.episodes if row.episode in step.tasks]
    if isinstance(step, Wake):
        return step.first + len(step.tasks), _means("train", rows, prices)
    return step.checkpoint, _means("test", rows, prices)


def _means(phase: str, rows: Sequence[EpisodeRow], prices: Prices) -> dict[str, float]:
    from speedrunner.results.checkpoints import MEANS, frame_episodes

    frame = frame_episodes(rows)
    lists = {"uncached": prices.uncached, "cached": prices.cached, "output": prices.output}
    frame["usd"] = sum(frame[tokens] * price / 1e6 for tokens, price in lists.items())
    scored = frame[frame["score"].notna()]
    means = scored[[*MEANS, "skill_calls"]].mean().dropna()
    found = {"unscored": float(len(rows) - len(scored))} | {
        str(name): float(value) for name, value in means.items()
    }
    return {f"{phase}/{name}": value for name, value in found.items()}


def _names(tracked: Tracked) -> tuple[str, ...]:
    return {"none": (), "both": ("tensorboard", "wandb")}.get(tracked, (tracked,))


def _module(name: str, tracker: str) -> Any:
    """Import a tracker's module, which has the same name as its package."""
    return optional(name, tracker, f"logging={tracker}")
