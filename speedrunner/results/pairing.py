"""Differences between runs, checkpoints and conditions, paired by seed and test task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

import pandas
from msgspec.structs import replace

from speedrunner.config.condition import Choice, ModelVariant
from speedrunner.config.schema import differences
from speedrunner.results.conditions import OURS, Condition, group_runs
from speedrunner.results.inference import (
    CONFIDENCE,
    Estimate,
    estimate_independent,
    estimate_mean,
)
from speedrunner.results.means import MEASURES, TESTED, Measure
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Cell, Table, caption
from speedrunner.store.process_notes import ACCEPTABLE, changes, process_lines

WORLD = ("env.primitives", "env.limits", "env.tasks")
"""Digests that make tasks with equal names different worlds."""


class CannotCompare(Exception):
    """The chosen runs do not exist, or have nothing in common that could be compared."""


def pair_runs(
    first: Condition, second: Condition, point: int | None = None
) -> dict[int, tuple[RunResult, RunResult]]:
    """Return the runs to compare, by seed: those with equal seeds, or the only run of each side.

    Args:
        point: a checkpoint that both runs of a pair must have finished.
    """
    pairs = {seed: (run, second.runs[seed]) for seed, run in first.runs.items() if seed in second.runs}
    if len(first.runs) == len(second.runs) == 1:
        pairs = {0: (first.first, second.first)}
    return {
        seed: runs
        for seed, runs in pairs.items()
        if point is None or all(point in run.points for run in runs)
    }


def subtract_values(first: RunResult, second: RunResult, point: int, column: str) -> pandas.Series[float]:
    """Return the second run's value minus the first's of each test task that has a value in both."""
    one, other = first.values(point, column), second.values(point, column)
    return (other - one.reindex(other.index)).dropna()


def estimate_difference(first: Condition, second: Condition, point: int, column: str) -> Estimate | None:
    """Return the second side's mean minus the first's, over pairs of equal seed and task, with its interval;
    `None` without pairs. Seeds without a finished evaluation on both sides have none."""
    pairs = pair_runs(first, second, point)
    return estimate_mean({seed: subtract_values(*runs, point, column) for seed, runs in pairs.items()})


class Compared(NamedTuple):
    """One condition at one checkpoint.

    Attributes:
        rollouts: training rollouts before it.
        measure: tokens and USD are per test episode.
        side: the condition.
        mean: over its seeds and test tasks; `None` if no value is known.
        difference: from the first condition, over pairs of seeds and tasks; `None` without pairs.
    """

    rollouts: int
    measure: Measure
    side: Condition
    mean: Estimate | None
    difference: Estimate | None


def split_conditions(runs: Sequence[RunResult]) -> list[Condition]:
    """Return the conditions of runs in the order in which they are named; each run alone if two runs have one
    condition and seed."""
    conditions, _ = group_runs(runs)
    if sum(len(condition.runs) for condition in conditions) < len(runs):
        return [Condition(run.condition, {run.seed: run}) for run in runs]
    places = {run.path: place for place, run in enumerate(runs)}
    return sorted(conditions, key=lambda each: min(places[run.path] for run in each.runs.values()))


def find_common_points(sides: Sequence[Condition]) -> list[int]:
    """Return the checkpoints that a run of each condition and the first condition's run of its pair have
    finished.

    Raises `CannotCompare`: there is none, the conditions play different environments, or two of them share no
    seed.
    """
    first, *others = sides
    for side in others:
        if unlike := list_world_differences(first.first, side.first):
            raise CannotCompare(
                f"{side.first.path} plays other worlds or limits than {first.first.path}: {', '.join(unlike)}"
            )
        if not pair_runs(first, side):
            raise CannotCompare(f"{side.first.path} and {first.first.path} have no seed in common")
    points = [point for point in first.points if all(pair_runs(first, side, point) for side in others)]
    if not points:
        raise CannotCompare(
            "no checkpoint was finished by all conditions: "
            + "; ".join(
                f"{run.path} has {_join_points(run.points) or 'none'}"
                for side in sides
                for run in side.runs.values()
            )
        )
    return points


def compare(sides: Sequence[Condition]) -> list[Compared]:
    """Compare each condition with the first one, at the checkpoints of `find_common_points`, which may raise
    `CannotCompare`."""
    first = sides[0]
    return [
        Compared(
            point,
            measure,
            side,
            side.estimate(point, measure.name),
            None if side is first else estimate_difference(first, side, point, measure.name),
        )
        for point in find_common_points(sides)
        for measure in MEASURES
        if measure.is_compared
        for side in sides
    ]


def list_world_differences(first: RunResult, second: RunResult) -> list[str]:
    """Return the differences between two runs that make tasks with equal names different worlds."""
    unlike = [each for each in differences(first.config, second.config) if each.startswith("env.")]
    changed = [each for each in list_changes(first, second) if each.startswith(WORLD)]
    return unlike or [f"{each.partition(':')[0]}, by other code or settings" for each in changed]


def list_changes(first: RunResult, second: RunResult) -> list[str]:
    """Return the differences between the last processes of two runs, if both are recorded."""
    newest = [run.processes[-1:] for run in (first, second)]
    return changes(*newest[0], *newest[1]) if all(newest) else []


def note_run(side: RunResult, first: RunResult) -> list[str]:
    """Return the caveats of a run's numbers in a comparison with another one."""
    played, others = (
        run.episodes[(run.episodes["phase"] == "test") & run.episodes["checkpoint"].isin(side.points)]
        for run in (side, first)
    )
    unscored = int(played["score"].isna().sum())
    alone = len(set(played["task"]).difference(others["task"]))
    missing = side.unfinished
    found = {
        f"is not finished: no complete evaluation after {_join_points(missing)} rollouts": missing,
        f"{unscored} test episodes ended by an infrastructure error and are excluded from means": unscored,
        f"{alone} of its test tasks were not played by {first.path} and are excluded from pairs": alone,
        "its prices are unknown": side.book.prices is None,
    }
    texts = [text for text, applies in found.items() if applies] + process_lines(side.processes)
    return [f"{side.path}: {text}" for text in texts]


def note_code(side: RunResult, first: RunResult) -> str:
    """Return the differences of a run's code from the first run's in a line; "" without differences."""
    code = ", ".join(each for each in list_changes(first, side) if each.startswith(ACCEPTABLE))
    return f"{side.path}: was played with other code than {first.path}: {code}" if code else ""


def _join_points(points: list[int]) -> str:
    return ", ".join(map(str, points))


def make_test_table(conditions: Sequence[Condition]) -> Table:
    """Return the tests of a minus b that respect seeds and tasks, with p of the paper's, at the last
    checkpoint that a seed of both methods has finished."""
    rows: list[tuple[Cell, ...]] = []
    for a, b in _pair_methods(conditions):
        pairs = {seed: (b.runs[seed], run) for seed, run in a.runs.items() if seed in b.runs}
        common = {seed: {*one.points}.intersection(other.points) for seed, (one, other) in pairs.items()}
        last = max(chain(*common.values()), default=None)
        for metric in TESTED if last is not None else ():
            paired = {
                seed: own
                for seed, runs in pairs.items()
                if last in common[seed] and len(own := subtract_values(*runs, last, metric))
            }
            paper = estimate_independent(chain(*paired.values()))  # all pairs are independent there
            if (test := estimate_mean(paired)) and paper:
                names = a.names[0], a.names[2], metric, a.names[1], b.names[1], last
                t_test = test.mean, test.low, test.high, test.t, test.p
                rows.append((*names, len(paired), test.count, *t_test, paper.p))
    columns = ["env", "model", "metric", "a", "b", "checkpoint", "seeds", "pairs", "difference"]
    columns += ["low", "high", "t", "p", "paper_p"]
    return Table("ttests", caption("ttests", confidence=CONFIDENCE), columns, rows)


def _pair_methods(conditions: Sequence[Condition]) -> Iterator[tuple[Condition, Condition]]:
    """Yield the pairs to compare in each environment with each model: SpeedRunner with each other method, as
    in the paper, or all pairs without it. Evaluations of a stored library, all at checkpoint 0, are not
    compared with runs that train."""
    groups: dict[tuple[Choice, ModelVariant], list[Condition]] = {}
    for condition in conditions:
        groups.setdefault((condition.identity.env, condition.identity.model), []).append(condition)
    for group in groups.values():
        ours = [each for each in group if replace(each.first.condition.treatment, wording=0) == OURS]
        rest = [condition for condition in group if condition not in ours]
        for a, b in product(ours, rest) if ours else combinations(rest, 2):
            one, other = a.identity.treatment, b.identity.treatment
            if (
                (one.settings == other.settings or not (one.settings and other.settings))
                and one.wording == other.wording
                and _trains(a) == _trains(b)
            ):
                yield a, b


def _trains(condition: Condition) -> bool:
    return condition.first.config.run.rollouts > 0
