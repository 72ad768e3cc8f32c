"""Tables of tests between methods, paired by seed and test episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, groupby, product
from typing import NamedTuple

from speedrunner.statistics.groups import Group
from speedrunner.statistics.intervals import CONFIDENCE, RESAMPLES, Estimate, bootstrap_mean
from speedrunner.statistics.paired import PairedTest, holm, paired_t_test
from speedrunner.statistics.summary import Checkpoint
from speedrunner.statistics.writing import Cell, Table

TESTED = ("score", "output", "cost_usd")
"""The metrics that are tested."""

REFERENCE = "speedrunner"
"""The method that is tested against each other one, as in the paper; where it is missing, all are."""


def ttest_tables(groups: Sequence[Group], corrected: bool) -> list[Table]:
    """The t-tests, and the bootstrap intervals of the same differences.

    Args:
        corrected: whether p-values are corrected by Holm's procedure, per metric over the table.
    """
    ordered = sorted(groups, key=_place)
    found = [
        compared
        for _, beside in groupby(ordered, key=_place)
        for a, b in _pairs(list(beside))
        for compared in _compared(a, b)
    ]
    ps = {(each.metric, place): each.test.p for place, each in enumerate(found)}
    said = "p is not corrected for the number of tests."
    if corrected:
        for metric in TESTED:
            own = [key for key in ps if key[0] == metric]
            ps.update(zip(own, holm([ps[key] for key in own]), strict=True))
        said = "p is corrected by Holm's procedure over the tests of one metric in this table."
    tests: list[tuple[Cell, ...]] = []
    resampled: list[tuple[Cell, ...]] = []
    for place, each in enumerate(found):
        test, around = each.test, each.around
        names = (*_place(each.a), each.metric, each.a.setting.method, each.b.setting.method)
        p = ps[each.metric, place]
        tests.append((*names, test.pairs, test.difference, test.low, test.high, test.t, p))
        resampled.append((*names, each.point, test.pairs, test.difference, around.low, around.high))
    text = (
        "Two-sided paired t-tests by seed and test episode at the last common checkpoint: mean of a minus b,"
        f" its {CONFIDENCE:.0%} t interval, t and p. {said}"
    )
    around_text = (
        f"The same differences with {CONFIDENCE:.0%} percentile bootstrap intervals over pairs"
        f" ({RESAMPLES} resamples)."
    )
    columns = ("env", "model", "metric", "a", "b")
    interval = ("pairs", "difference", "low", "high")
    return [
        Table("ttests", text, (*columns, *interval, "t", "p"), tests),
        Table("bootstrap", around_text, (*columns, "checkpoint", *interval), resampled),
    ]


class _Compared(NamedTuple):
    """Two groups by one metric at a checkpoint."""

    a: Group
    b: Group
    metric: str
    point: int
    test: PairedTest
    around: Estimate


def _compared(a: Group, b: Group) -> Iterator[_Compared]:
    """By each metric, at the last checkpoint that a seed of both has finished."""
    others = {run.seed: run.checkpoints for run in b.runs}
    common = {point for run in a.runs for point in run.checkpoints if point in others.get(run.seed, {})}
    if not common:
        return
    last = max(common)
    for metric in TESTED:
        differences = [
            difference
            for run, own in a.at(last)
            if last in others.get(run.seed, {})
            for difference in _differences(own, others[run.seed][last], metric)
        ]
        test, around = paired_t_test(differences), bootstrap_mean(differences)
        if test is not None and around is not None:
            yield _Compared(a, b, metric, last, test, around)


def _differences(own: Checkpoint, their: Checkpoint, metric: str) -> Iterator[float]:
    """Of each test episode that has a value on both sides."""
    partners = {(each.episode, each.task): each.values for each in their.tested}
    share = own.sleep_usd - their.sleep_usd if metric == "cost_usd" else 0.0
    for each in own.tested:
        values = partners.get((each.episode, each.task), {})
        if metric in each.values and metric in values:
            yield each.values[metric] - values[metric] + share


def _place(group: Group) -> tuple[str, str]:
    return group.setting.env, group.setting.model


def _pairs(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    """What is tested against what in one environment with one model; nothing that differs in its schedule."""
    ours = [group for group in groups if group.runs[0].setting.method == REFERENCE]
    rest = [group for group in groups if group not in ours]
    pairs = product(ours, rest) if ours else combinations(rest, 2)
    return [(a, b) for a, b in pairs if "" in (a.other, b.other) or a.other == b.other]
