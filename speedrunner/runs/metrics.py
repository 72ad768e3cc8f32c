"""The metrics of a run while it is played, written for TensorBoard and Weights & Biases.

After each step, `step_metrics` returns what the step adds: means of its episodes, or the counts of its sleep.
`speedrunner.results` computes the tables afterwards. If a tracker fails, a warning is printed once and the
run continues.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from serving.usage import Usage
from speedrunner.config.schema import Config, to_mapping
from speedrunner.runs.plan import Evaluate, Sleep, Step, Wake
from speedrunner.store.process_notes import caveats, process_lines
from speedrunner.store.run_data import RunData
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import sleep_key


def step_metrics(step: Step, run: RunData) -> tuple[int, dict[str, float]]:
    """Return the number of training rollouts after a finished step, and its metrics.

    Means are over scored episodes. Tokens and USD are those of all roles, without wasted requests. USD are
    missing if a model has no price, and leave out prefix warm-ups, which later episodes share.
    """
    match step:
        case Sleep():
            rollouts = sum(each.rollouts for each in run.sleeps if each.sleep <= step.number)
            phase, found = "sleep", _sleep_metrics(step.number, run)
        case Wake():
            rollouts, phase, found = step.first + len(step.tasks), "train", _episode_metrics(step, run)
        case Evaluate():
            rollouts, phase, found = step.checkpoint, "test", _episode_metrics(step, run)
    return rollouts, {f"{phase}/{name}": float(value) for name, value in found.items()}


def _episode_metrics(step: Wake | Evaluate, run: RunData) -> dict[str, float]:
    rows = [row for row in run.rows if row.episode in step.tasks]
    scored = [row for row in rows if row.score is not None]
    asked = [row for row in scored if row.llm_calls]  # the others have no costs that a mean could include
    found = {
        "episodes": len(rows),
        "unscored": len(rows) - len(scored),
        "limited": sum(row.termination.is_limit for row in rows) / len(rows),
    }
    values = {
        name: [getattr(row, name) for row in scored]
        for name in ("score", "actions", "repeated_calls", "skill_calls")
    }
    values["llm_calls"] = [row.llm_calls for row in asked]
    found |= {name: fmean(own) for name, own in values.items() if own}
    costs = _count_costs(run, {row.episode for row in asked}) if asked else {}
    return found | {name: amount / len(asked) for name, amount in costs.items()}


def _sleep_metrics(number: int, run: RunData) -> dict[str, float]:
    record, policy = run.sleep(number), run.policies.load(number)
    found = {
        "accepted": record.accepted,
        "refused": record.refused,
        "replayed": len(record.episodes),
        "llm_calls": len(record.turns),
        "seconds": record.seconds,
        "skills": len(policy.skills),
        "public": sum(skill.public for skill in policy.skills),
        **_count_costs(run, {sleep_key(number)}),
    }
    if record.prefix is not None:
        before, after = record.prefix.before, record.prefix.after
        found |= {"prefix_before": before, "prefix_after": after}
        found["prefix_invalidated"] = before - record.prefix.common
    return found


def _count_costs(run: RunData, keys: set[str]) -> dict[str, float]:
    """Return the tokens and USD of episodes or sleeps by their keys."""
    rows = [row for row in run.requests if not row.wasted and row.labels.get("episode") in keys]
    used = [(row.model, row.usage) for row in rows if row.usage is not None]
    usage = sum((usage for _, usage in used), Usage())
    found: dict[str, float] = {"uncached": usage.uncached, "cached": usage.cached, "output": usage.completion}
    if all(model in run.prices for model, _ in used):
        found["usd"] = sum(run.prices[model].cost(usage) for model, usage in used)
    return found


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
    """An offline run in `RUN/wandb`, which the user can upload with `wandb sync`; nothing is sent
    from here."""

    def __init__(self, path: Path, notes: str, config: Config) -> None:
        wandb = import_module("wandb")
        self._run = wandb.init(
            mode="offline",
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
