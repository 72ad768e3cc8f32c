"""Tables of tests between conditions, paired by seed and test episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import pandas

from speedrunner.results.conditions import FAMILIES, OURS, Condition
from speedrunner.results.inference import (
    CONFIDENCE,
    RESAMPLES,
    bootstrap_seeds,
    correct_holm,
    paper_ttest,
    ttest_seeds,
)
from speedrunner.results.paired import subtract_values
from speedrunner.results.writing import Table, table_of

TESTED = ("score", "output", "cost_usd")
"""The tested metrics."""

POOLED = "scienceworld"
"""The environment of rows that pool both families, as in the caption of the paper's main figure."""

Differences = dict[int, list[float]]
"""By seed, the difference of each test episode that has a value on both sides."""


def make_test_tables(conditions: Sequence[Condition], corrected: bool) -> list[Table]:
    """Return the tests that respect seeds, and the paper's.

    Args:
        corrected: whether p-values are corrected by Holm's procedure, per metric over the table.
    """
    rows, paper = [], []
    for names, differences in _compare_all(conditions):
        test, around = ttest_seeds(differences), bootstrap_seeds(differences)
        independent = paper_ttest([value for own in differences.values() for value in own])
        if test is None or around is None or independent is None:
            continue
        count = {"seeds": test.count, "pairs": around.count}
        ends = {"low": test.low, "high": test.high, "t": test.t, "p": test.p}
        boot = {"boot_low": around.low, "boot_high": around.high}
        rows.append({**names, **count, "difference": test.mean, **ends, **boot})
        ends = {"low": independent.low, "high": independent.high, "t": independent.t, "p": independent.p}
        paper.append({**names, **count, "difference": independent.mean, **ends})
    note = "p is not corrected for the number of tests."
    if corrected:
        note = "p is corrected by Holm's procedure over the tests of one metric in this table."
        for table in (rows, paper):
            for metric in TESTED:
                own = [row for row in table if row["metric"] == metric]
                for row, p in zip(own, correct_holm([row["p"] for row in own]), strict=True):
                    row["p"] = p
    columns = ["env", "model", "metric", "a", "b", "checkpoint", "seeds", "pairs"]
    columns += ["difference", "low", "high", "t", "p"]
    text = (
        "Differences a minus b at the last common checkpoint, paired by seed and test episode: the mean over"
        f" seeds of the seeds' mean differences, with the {CONFIDENCE:.0%} interval, t and p of a two-sided"
        f" t-test on these means (degrees of freedom: seeds less one), and the {CONFIDENCE:.0%} interval of a"
        f" bootstrap that resamples seeds, then episodes within each ({RESAMPLES} resamples)."
        f" {POOLED}: both families, each with equal weight. {note}"
    )
    paper_text = (
        "The paper's test, for comparison: two-sided paired t-tests that treat all pairs of seed and test"
        f" episode as independent. Episodes of one seed share a library, so it rejects too often. {note}"
    )
    return [
        table_of("ttests", text, pandas.DataFrame(rows, columns=[*columns, "boot_low", "boot_high"])),
        table_of("paper_ttests", paper_text, pandas.DataFrame(paper, columns=columns)),
    ]


def _compare_all(conditions: Sequence[Condition]) -> Iterator[tuple[dict[str, Any], Differences]]:
    """Yield the identifying columns of each comparison with its differences; pooled ones follow their
    families."""
    found: dict[tuple[str, str, str, str], dict[str, tuple[int, Differences]]] = {}
    settings = dict.fromkeys((each.condition_name.env, each.condition_name.model) for each in conditions)
    for env, model in settings:
        own = [
            each
            for each in conditions
            if (each.condition_name.env, each.condition_name.model) == (env, model)
        ]
        for a, b in _pair_methods(own):
            for metric in TESTED:
                compared = compare_last(a, b, metric)
                if compared is not None:
                    names = {"env": env, "model": model, "metric": metric}
                    methods = {"a": a.condition_name.method, "b": b.condition_name.method}
                    yield {**names, **methods, "checkpoint": compared[0]}, compared[1]
                    key = model, metric, methods["a"], methods["b"]
                    found.setdefault(key, {})[env] = compared
    for (model, metric, a_name, b_name), by_env in found.items():
        if all(family in by_env for family in FAMILIES):
            parts = [by_env[family] for family in FAMILIES]
            names = {"env": POOLED, "model": model, "metric": metric, "a": a_name, "b": b_name}
            yield {**names, "checkpoint": min(point for point, _ in parts)}, _pool([own for _, own in parts])


def _pool(parts: Sequence[Differences]) -> Differences:
    """Join the differences of environments, for the seeds that all of them have."""
    seeds = set.intersection(*(set(part) for part in parts))
    return {seed: [value for part in parts for value in part[seed]] for seed in sorted(seeds)}


def compare_last(a: Condition, b: Condition, metric: str) -> tuple[int, Differences] | None:
    """Return the last checkpoint that a seed of both has finished, and the differences a minus b there."""
    common = {seed: {*own.points}.intersection(other.points) for seed, (own, other) in a.pair(b).items()}
    if not any(common.values()):
        return None
    last = max(point for points in common.values() for point in points)
    return last, {
        seed: subtract_values(b.runs[seed], a.runs[seed], (last, last), metric)
        for seed, points in common.items()
        if last in points
    }


def _pair_methods(conditions: Sequence[Condition]) -> list[tuple[Condition, Condition]]:
    """Return the pairs to compare in one environment with one model: SpeedRunner with each other method,
    as in the paper, or all pairs without it. Evaluations of a stored library, all at checkpoint 0, are not
    compared with runs that train."""
    ours = [each for each in conditions if each.first.condition_name.method == OURS]
    rest = [each for each in conditions if each not in ours]
    pairs = product(ours, rest) if ours else combinations(rest, 2)
    return [
        (a, b)
        for a, b in pairs
        if ("" in (a.variant, b.variant) or a.variant == b.variant) and _trains(a) == _trains(b)
    ]


def _trains(condition: Condition) -> bool:
    return condition.first.config.run.rollouts > 0
