"""Compare runs at their checkpoints, paired by test task."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from speedrunner.config.schema import differences
from speedrunner.results.checkpoints import LIMITS, average_tests
from speedrunner.results.evaluated_run import EvaluatedRun
from speedrunner.results.inference import Estimate, bootstrap_mean
from speedrunner.results.paired import subtract_values
from speedrunner.store.process_notes import ACCEPTABLE, caveats, changes, process_lines

METRICS = ("score", "llm_calls", "uncached", "cached", "output", "usd")
"""Columns of the frame of episodes that are compared."""

WORLD = ("env.primitives", "env.limits", "env.tasks")
"""Digests that make tasks with equal names different worlds."""


class CannotCompare(Exception):
    """The chosen runs do not exist, or have nothing in common that could be compared."""


class Compared(msgspec.Struct, frozen=True):
    """One run at one checkpoint.

    Attributes:
        rollouts: training rollouts before it.
        metric: see `METRICS`; tokens and USD are per test episode.
        run: its path.
        mean: over its test tasks; `None` if no value is known.
        difference: from the first run, over the tasks that both played; `None` without such tasks.
    """

    rollouts: int
    metric: str
    run: str
    mean: Estimate | None
    difference: Estimate | None


class Limited(msgspec.Struct, frozen=True):
    """The share of one run's test episodes at one checkpoint that limits ended, by limit, without zeros."""

    rollouts: int
    run: str
    shares: dict[str, float]


class Comparison(msgspec.Struct, frozen=True):
    """The result of a comparison; `notes` are caveats."""

    rows: list[Compared]
    limits: list[Limited]
    notes: list[str]


def compare(sides: Sequence[EvaluatedRun]) -> Comparison:
    """Compare each run with the first one, at the checkpoints that all of them have finished.

    Raises:
        CannotCompare: they play different environments, or have no finished checkpoint in common.
        InvalidConfig, StorageError: a run cannot be read.
    """
    first, *others = sides
    for side in others:
        if unlike := list_world_differences(first, side):
            raise CannotCompare(
                f"{side.path} uses another environment than {first.path}: {', '.join(unlike)}"
            )
    points = [point for point in first.points if all(point in side.points for side in others)]
    if not points:
        raise CannotCompare(
            "no checkpoint was finished by all runs: "
            + "; ".join(f"{side.path} has {_join_points(side.points) or 'none'}" for side in sides)
        )
    rows, limits = [], []
    ended = [average_tests(side.episodes)[[*LIMITS]] for side in sides]
    for point in points:
        for side, shares in zip(sides, ended, strict=True):
            known = {str(name): share for name, share in shares.loc[point].items() if share}
            limits.append(Limited(point, side.path, known))
        for metric in METRICS:
            for side in sides:
                mean = bootstrap_mean(side.values(point, metric).tolist())
                pairs = [] if side is first else subtract_values(first, side, (point, point), metric)
                rows.append(Compared(point, metric, side.path, mean, bootstrap_mean(pairs)))
    notes = [note for side in sides for note in _notes(side, first, points)]
    return Comparison(rows, limits, notes + caveats(each for side in sides for each in side.processes))


def list_world_differences(first: EvaluatedRun, second: EvaluatedRun) -> list[str]:
    """Return the differences between two runs that make tasks with equal names different worlds."""
    unlike = [each for each in differences(first.config, second.config) if each.startswith("env.")]
    return unlike or [each for each in list_changes(first, second) if each.startswith(WORLD)]


def list_changes(first: EvaluatedRun, second: EvaluatedRun) -> list[str]:
    """Return the differences between the last processes of two runs, if both are recorded."""
    newest = [run.processes[-1:] for run in (first, second)]
    return changes(*newest[0], *newest[1]) if all(newest) else []


def _notes(side: EvaluatedRun, first: EvaluatedRun, points: list[int]) -> list[str]:
    """Return the caveats of a run's numbers."""
    played, others = (
        run.episodes[(run.episodes["phase"] == "test") & run.episodes["checkpoint"].isin(points)]
        for run in (side, first)
    )
    unscored = int(played["score"].isna().sum())
    alone = len(set(played["task"]).difference(others["task"]))
    missing = side.unfinished
    found = {
        f"is not finished: no complete evaluation after {_join_points(missing)} rollouts": missing,
        f"{unscored} test episodes ended by an infrastructure error and are excluded from means": unscored,
        f"{alone} of its test tasks were not played by {first.path} and are excluded from pairs": alone,
        f"unknown prices of {', '.join(side.unpriced)}": side.unpriced,
    }
    code = ", ".join(each for each in list_changes(first, side) if each.startswith(ACCEPTABLE))
    found[f"was played with other code than {first.path}: {code}"] = code
    texts = [text for text, holds in found.items() if holds] + process_lines(side.processes)
    return [f"{side.path}: {text}" for text in texts]


def _join_points(points: list[int]) -> str:
    return ", ".join(map(str, points))
