"""The metrics of a run while it is played, written for TensorBoard and Weights & Biases.

After each step, `step_metrics` returns what the step adds: means of its episodes, or the counts of its sleep.
If a tracker fails, a warning is printed once and the run continues.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any

from speedrunner.config.schema import Config, to_mapping
from speedrunner.results.frames import frame_episodes, frame_sleeps
from speedrunner.results.ledger import WARM_UP, Ledger
from speedrunner.results.means import average_tests
from speedrunner.results.pricing import price_book
from speedrunner.runs.plan import Evaluate, Sleep, Step
from speedrunner.store.process_notes import caveats, process_lines
from speedrunner.store.run_data import RunData
from speedrunner.store.rundir import RunDirectory


def step_metrics(step: Step, run: RunData) -> tuple[int, dict[str, float]]:
    """Return the number of training rollouts after a finished step, and its metrics: the known columns of
    `frame_sleeps`, or of `average_tests` for the episodes of a wake or an evaluation, without warm-ups."""
    costs = Ledger.of(run).price(price_book(run))
    lines = {labels: spend for labels, spend in costs.lines.items() if labels.role != WARM_UP}
    costs = replace(costs, lines=lines)  # later episodes share the warm-ups
    if isinstance(step, Sleep):
        sleeps = frame_sleeps(run, costs)
        sleeps = sleeps[sleeps["sleep"] <= step.number]
        rollouts, phase, row = int(sleeps["rollouts"].sum()), "sleep", sleeps.iloc[-1]
        row["skills"] = len(run.policies.load(step.number).skills)
    else:
        episodes = frame_episodes([each for each in run.rows if each.episode in step.tasks], costs)
        row = average_tests(episodes.assign(phase="test"), len(step.tasks)).iloc[0]
        phase = "test" if isinstance(step, Evaluate) else "train"
        rollouts = step.checkpoint if isinstance(step, Evaluate) else step.first + len(step.tasks)
    numbers = row[row.map(lambda value: isinstance(value, Real) and value == value)]
    return rollouts, {f"{phase}/{name}": float(value) for name, value in numbers.items()}


class TensorBoard:
    """An event file in `RUN/tensorboard`, written without TensorFlow."""

    def __init__(self, path: Path, notes: str) -> None:
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        self._event = import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._file = writer.EventFileWriter(str(path / "tensorboard"))
        if notes:
            self._add(0, import_module("tensorboard.plugins.text.summary_v2").text_pb("notes", notes))

    def log(self, rollouts: int, values: Mapping[str, float]) -> None:
        """Add values after this number of training rollouts."""
        found = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(rollouts, self._summary(value=found))

    def _add(self, rollouts: int, summary: Any) -> None:
        self._file.add_event(self._event(wall_time=time.time(), step=rollouts, summary=summary))
        self._file.flush()

    def close(self) -> None:
        """Write buffered values."""
        self._file.close()


class WeightsAndBiases:
    """A run in `RUN/wandb`. It is sent nowhere unless W&B's own variable WANDB_MODE asks for it."""

    def __init__(self, path: Path, notes: str, config: Config) -> None:
        wandb = import_module("wandb")
        self._run = wandb.init(
            mode=os.environ.get("WANDB_MODE", "offline"),  # a compute node often has no network
            project="speedrunner",
            id=hashlib.sha256(str(path).encode()).hexdigest()[:16],  # one W&B run, also after a resume
            resume="allow",
            name=path.name,
            notes=notes,
            dir=str(path),
            config=to_mapping(config),
            reinit="create_new",  # several runs in one process
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True
            ),
        )

    def log(self, rollouts: int, values: Mapping[str, float]) -> None:
        """Add values after this number of training rollouts."""
        self._run.log({"rollouts": rollouts, **values})

    def close(self) -> None:
        """Write buffered values."""
        self._run.finish()


@contextmanager
def track(
    config: Config, directory: RunDirectory, say: Callable[[str], None]
) -> Iterator[Callable[[Step], None]]:
    """Open the trackers that `logging` names. Yield a function to call with each finished step.

    Args:
        say: called with a line if a tracker fails.
    """
    trackers: dict[str, TensorBoard | WeightsAndBiases] = {}

    def attempt(name: str, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:
            trackers.pop(name, None)
            say(f"warning: stopped writing curves for {name}: {type(error).__name__}: {error}")

    def start(name: str) -> None:
        path, run = directory.path.resolve(), directory.read()
        notes = "\n".join(f"- {line}" for line in (*caveats([run]), *process_lines(run.processes)))
        trackers[name] = (
            TensorBoard(path, notes) if name == "tensorboard" else WeightsAndBiases(path, notes, config)
        )

    def log(name: str, step: Step) -> None:
        trackers[name].log(*step_metrics(step, directory.read()))

    def finished(step: Step) -> None:
        for name in list(trackers):
            attempt(name, partial(log, name, step))

    for name in {"none": (), "both": ("tensorboard", "wandb")}.get(config.logging, (config.logging,)):
        attempt(name, partial(start, name))
    try:
        yield finished
    finally:
        for name, tracker in list(trackers.items()):
            attempt(name, tracker.close)
