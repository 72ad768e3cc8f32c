"""Judge the paper's claims (`published`) by measured runs.

A comparison is supported if its whole interval is in the claimed range, contradicted if all of it is outside,
and undecided otherwise. The interval is the smallest one that contains two: the bootstrap that resamples
seeds, then episodes, and Student's t over the seeds' values. The bootstrap alone is too narrow below five
seeds, t alone ignores the episodes if the seeds happen to be equal. A range with two ends ("ties", "about")
has a 90% interval: it is in the range if both one-sided tests at 5% reject the values outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Literal, get_args

import numpy
import pandas
from msgspec import Struct
from msgspec.structs import replace

from speedrunner.results.conditions import Condition, pool_wordings
from speedrunner.results.inference import (
    CONFIDENCE,
    RunKey,
    bootstrap_statistic,
    count_levels,
    keep_crossing,
    paper_ttest,
    seed_values,
    ttest_seeds,
)
from speedrunner.results.paper import find_runs, played_models
from speedrunner.results.published import Claim, published_values
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Cell, Table, caption

CLAIMS = "claims"
"""Name of the table of verdicts."""

EQUIVALENCE = 2 * CONFIDENCE - 1
"""The interval of two one-sided tests, each at the level of one tail of `CONFIDENCE`'s two-sided test."""

MEASURED = ("measured", "low", "high", "paper_p", "wordings", "seeds")
"""Columns of both tables."""

NO_VALUES = pandas.Series(dtype=float)

Verdict = Literal["contradicted", "undecided", "supported"]

Runs = Mapping[tuple[str, str], Mapping[RunKey, RunResult]]
"""Runs of one model by environment and method, then by wording and seed."""


class JudgedRow(Struct, frozen=True):
    """A comparison with its measured value.

    Attributes:
        model: the model of the runs.
        runs: number of finished runs found.
        wordings, seeds: those of finished runs that have all of its values.
        low, high: the interval; `None` if there is none.
        paper_p: p of the paper's own test of the difference of both sides; `None` for one side.
        reason: why it is undecided; otherwise empty.
    """

    row: Claim
    model: str
    runs: int
    wordings: int
    seeds: int
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    paper_p: float | None = None
    verdict: Verdict = "undecided"
    reason: str = ""


class JudgedClaim(Struct, frozen=True):
    """A claim with its verdict.

    Attributes:
        claim: its first comparison, which describes it.
        model: the model of the runs; several for a claim about several.
        deciding: the comparison that explains the verdict.
        rows: all comparisons.
    """

    claim: Claim
    model: str
    verdict: Verdict
    deciding: JudgedRow
    rows: list[JudgedRow]

    @property
    def has_runs(self) -> bool:
        """Return whether a comparison has a finished run."""
        return any(each.runs for each in self.rows)

    @property
    def paper(self) -> str:
        """Return the value that the paper prints for the claim, else for the comparison that explains it."""
        return self.claim.paper or published_values(self.deciding.row)

    @property
    def direction(self) -> str:
        """Return how many of the measured values are in their ranges, one of USD by both cache rules:
        `7 of 9`."""
        known = [each for each in self.rows if each.measured is not None]
        outside = {each.row.counted_as for each in known if not each.row.contains(each.measured)}
        count = len({each.row.counted_as for each in known})
        return f"{count - len(outside)} of {count}"


def judge_claims(claims: Sequence[Sequence[Claim]], conditions: Sequence[Condition]) -> list[JudgedClaim]:
    """Judge each claim for each played model; a claim about certain models once."""
    judged, conditions = [], pool_wordings(conditions)
    for rows in claims:
        named = dict.fromkeys(row.model for row in rows if row.model)
        for model in [", ".join(named)] if named else played_models(conditions):
            models = [row.model or model for row in rows]
            pairs = zip(rows, models, strict=True)
            found = [judge_row(row, name, find_sides(row, name, conditions)) for row, name in pairs]
            judged.append(JudgedClaim(rows[0], model, *_decide(found, rows[0].needed), found))
    return judged


def find_sides(row: Claim, model: str, conditions: Sequence[Condition]) -> Runs:
    """Return the runs of both sides of a comparison, by environment and method."""
    found = {}
    for env, method in ((env, method) for envs, method, _ in row.sides for env in envs):
        name, _, other = method.partition("@")
        found[env, method] = find_runs(conditions, env, name, other or model)
    return found


def keep_finished(runs: Runs) -> Runs:
    """Return the runs that have finished all of their checkpoints."""
    return {
        names: {key: run for key, run in own.items() if run.points and not run.unfinished}
        for names, own in runs.items()
    }


def _decide(rows: Sequence[JudgedRow], needed: int) -> tuple[Verdict, JudgedRow]:
    """Return the verdict on a claim, and the comparison that explains it: a measured one if possible."""
    groups = [list(own) for _, own in groupby(rows, key=lambda each: each.row.group)]
    worst = [min((each.verdict for each in own), key=get_args(Verdict).index) for own in groups]
    counts, needed = Counter(worst), needed or len(groups)
    verdict: Verdict = "undecided"
    if counts["supported"] >= needed:
        verdict = "supported"
    elif len(groups) - counts["contradicted"] < needed:
        verdict = "contradicted"
    explaining = chain(*(own for own, found in zip(groups, worst, strict=True) if found == verdict))
    fitting = [each for each in explaining if each.verdict == verdict] or rows
    return verdict, min(fitting, key=lambda each: each.measured is None)


def judge_row(row: Claim, model: str, runs: Runs) -> JudgedRow:
    """Judge one comparison by the finished runs among those of its conditions."""
    finished = keep_finished(runs)
    samples, count = collect_samples(row, finished), sum(map(len, finished.values()))
    found = JudgedRow(row, model, count, *count_levels(samples))
    if lacking := [f"{method} on {env}" for (env, method), own in finished.items() if not own]:
        return replace(found, reason=f"no finished run of {', '.join(lacking)}")
    if not samples:
        return replace(found, reason="no seed has all values: no common seed, no prices, or no requests")
    if is_free(row, samples):
        return replace(found, reason="all prices are zero: speedrunner report DIR --prices NAME")
    return judge_samples(found, samples)


def is_free(row: Claim, samples: Mapping[RunKey, Sequence[numpy.ndarray]]) -> bool:
    """Return whether a comparison is one of costs that are all 0, since all prices are zero."""
    return row.is_usd and bool(samples) and not any(own.any() for each in samples.values() for own in each)


def judge_samples(found: JudgedRow, samples: Mapping[RunKey, Sequence[numpy.ndarray]]) -> JudgedRow:
    """Return a comparison with the measured value, interval and verdict of its samples.

    Args:
        samples: by wording and seed, an array for each environment with a column for A and one for B, if
            there is one.
    """
    row = found.row
    confidence = CONFIDENCE if None in (row.low, row.high) else EQUIVALENCE
    with numpy.errstate(divide="ignore", invalid="ignore"):
        around = bootstrap_statistic(samples, row.statistic, confidence)
        values = {key: [value] for key, value in seed_values(samples, row.statistic).items()}
        test = ttest_seeds(values, confidence)
    assert around is not None
    assert test is not None
    ends = [*(around.ends or ()), *(test.ends or ())]
    if not numpy.isfinite([around.mean, *ends]).all():
        return replace(found, reason="the other value is 0 in some episodes, so the ratio has no interval")
    if len(row.sides) == 2:
        usual = [each for key, each in samples.items() if key[0] == min(samples)[0]]
        pairs = numpy.concatenate([own for each in usual for own in each])
        independent = paper_ttest((pairs[:, 0] - pairs[:, 1]).tolist())
        found = replace(found, paper_p=independent and independent.p)
    found = replace(found, measured=around.mean)
    if found.seeds == 1:
        return replace(found, reason="one seed, and 2 are needed: play others with run.seed=N")
    low, high = min(ends), max(ends)
    if low == high and found.seeds == 2:
        return replace(found, reason="2 seeds with equal values give no interval")
    found = replace(found, low=low, high=high)
    least, most = row.ends
    if least < low and high < most:
        return replace(found, verdict="supported")
    if high < least or low > most:
        return replace(found, verdict="contradicted")
    where = "is at the end of the range" if low == high else "has values inside and outside the range"
    return replace(found, reason=f"the interval {where} ({row.range})")


def collect_samples(row: Claim, finished: Runs) -> dict[RunKey, list[numpy.ndarray]]:
    """Return the values by wording and seed, as `judge_samples` expects them."""
    samples = {}
    for key in sorted(set.intersection(*map(set, finished.values()))):
        arrays = []
        for envs in zip(*(envs for envs, _, _ in row.sides), strict=True):
            columns = []
            for env, (_, method, at) in zip(envs, row.sides, strict=True):
                run = finished[env, method][key]
                known = at < len(run.points)
                columns.append(run.values(run.points[at], row.measure) if known else NO_VALUES)
            arrays.append(pandas.concat(columns, axis=1, join="inner").to_numpy())
        if all(map(len, arrays)):
            samples[key] = arrays
    return keep_crossing(samples)


def claim_tables(judged: Sequence[JudgedClaim]) -> list[Table]:
    """Return the verdicts on the paper's claims, and the comparisons behind them that have a run."""
    shown = ["text", "place", "model", "paper", *MEASURED, "direction", "verdict"]
    columns = ["claim", "place", "model", "text", "verdict", "reason", "paper", "comparison", *MEASURED]
    columns += ["direction", "has_runs", "experiment"]
    rows: list[tuple[Cell, ...]] = []
    for each in judged:
        first, found = each.claim, each.deciding
        rows.append(
            (
                *(first.claim, first.place, each.model, first.text, each.verdict, found.reason),
                *(each.paper, found.row.comparison, *(getattr(found, name) for name in MEASURED)),
                *(each.direction, int(each.has_runs), first.experiment),
            )
        )
    text = caption("claims", confidence=CONFIDENCE, equivalence=EQUIVALENCE)
    claims = Table(CLAIMS, text, columns, rows, shown=shown)
    columns = ["claim", "model", "comparison", "paper", "range_low", "range_high", *MEASURED]
    rows = [
        (
            *(found.row.claim, found.model, found.row.comparison, published_values(found.row)),
            *(found.row.low, found.row.high, *(getattr(found, name) for name in MEASURED)),
            *(found.verdict, found.reason),
        )
        for each in judged
        for found in each.rows
        if found.runs
    ]
    columns += ["verdict", "reason"]
    return [claims, Table("claim_comparisons", caption("claim_comparisons"), columns, rows)]


def count_verdicts(judged: Sequence[JudgedClaim]) -> str:
    """Return the number of claims with each verdict, as text; claims without runs are counted apart."""
    counts = Counter(each.verdict if each.has_runs else "without runs" for each in judged)
    order = ("supported", "contradicted", "undecided", "without runs")
    return ", ".join(f"{counts[name]} {name}" for name in order)
