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
from operator import attrgetter
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

Verdict = Literal["contradicted", "undecided", "supported"]

Runs = Mapping[tuple[str, str], Mapping[RunKey, RunResult]]
"""Finished runs of one model by environment and method, then by wording and seed."""


class JudgedRow(Struct, frozen=True):
    """A comparison with its measured value.

    Attributes:
        model: the model of the runs.
        has_runs: whether there is a finished run of its conditions.
        wordings, seeds: those of finished runs that have all of its values.
        low, high: the interval; `None` if there is none.
        paper_p: p of the paper's own test of the difference of both sides; `None` for one side.
        reason: why it is undecided; otherwise empty.
    """

    row: Claim
    model: str
    has_runs: bool
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
        model: the model of the runs; several for a claim about several.
        deciding: the comparison whose verdict is the claim's.
        rows: all comparisons.
    """

    model: str
    deciding: JudgedRow
    rows: list[JudgedRow]

    @property
    def claim(self) -> Claim:
        """Return the first comparison, which describes the claim."""
        return self.rows[0].row

    @property
    def verdict(self) -> Verdict:
        """Return the verdict."""
        return self.deciding.verdict

    @property
    def has_runs(self) -> bool:
        """Return whether a comparison has a finished run."""
        return any(each.has_runs for each in self.rows)

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
        named = ", ".join(dict.fromkeys(row.model for row in rows if row.model))
        for model in [named] if named else played_models(conditions):
            found = [judge_row(row, row.model or model, conditions) for row in rows]
            judged.append(JudgedClaim(model, _find_deciding(found, rows[0].needed), found))
    return judged


def _find_deciding(rows: Sequence[JudgedRow], needed: int) -> JudgedRow:
    """Return the comparison whose verdict is the claim's: a measured one if possible."""

    def rank(row: JudgedRow) -> tuple[int, bool]:
        return get_args(Verdict).index(row.verdict), row.measured is None

    groups = groupby(rows, key=lambda each: each.row.group)
    worst = sorted((min(own, key=rank) for _, own in groups), key=rank)
    verdict = worst[-needed].verdict  # so many groups have it or a better one; -0 is the worst of all
    return next(each for each in worst if each.verdict == verdict)


def find_finished(row: Claim, model: str, conditions: Sequence[Condition]) -> Runs:
    """Return the runs of a comparison's conditions that have finished all of their checkpoints, and as many
    as it needs."""
    sides, found = [*chain(*row.pairs)], {}
    for env, method, _ in sides:
        least = 1 + max(0, *(at for *side, at in sides if side == [env, method]))
        name, _, other = method.partition("@")
        runs = find_runs(conditions, env, name, other or model).items()
        found[env, method] = {
            key: run for key, run in runs if len(run.points) >= least and not run.unfinished
        }
    return found


def judge_row(row: Claim, model: str, conditions: Sequence[Condition]) -> JudgedRow:
    """Judge a comparison by the finished runs of its conditions."""
    finished = find_finished(row, model, conditions)
    samples = collect_samples(row, finished)
    found = JudgedRow(row, model, any(finished.values()), *count_levels(samples))
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
        values = seed_values(samples, row.statistic)
        measured = float(numpy.mean([*values.values()]))
        resampled = bootstrap_statistic(samples, row.statistic, confidence)
        tested = ttest_seeds({key: [value] for key, value in values.items()}, confidence)
    ends = [end for each in (resampled, tested) if each and each.ends for end in each.ends]
    if not numpy.isfinite([measured, *ends]).all():
        return replace(found, reason="the other value is 0 in some episodes, so the ratio has no interval")
    found = replace(found, measured=measured)
    if row.b:
        usual = [own for key, arrays in samples.items() if key[0] == min(samples)[0] for own in arrays]
        pairs = numpy.concatenate(usual)
        independent = paper_ttest((pairs[:, 0] - pairs[:, 1]).tolist())
        found = replace(found, paper_p=independent and independent.p)
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
    return replace(found, reason=f"the interval is not wholly inside or outside the range ({row.range})")


def collect_samples(row: Claim, finished: Runs) -> dict[RunKey, list[numpy.ndarray]]:
    """Return the values by wording and seed, as `judge_samples` expects them."""
    samples = {}
    for key in sorted(set.intersection(*map(set, finished.values()))):
        arrays = []
        for pair in row.pairs:
            runs = [(finished[env, method][key], at) for env, method, at in pair]
            columns = [run.values(run.points[at], row.measure) for run, at in runs]
            arrays.append(pandas.concat(columns, axis=1, join="inner").to_numpy())
        if all(map(len, arrays)):
            samples[key] = arrays
    return keep_crossing(samples)


def claim_tables(judged: Sequence[JudgedClaim]) -> list[Table]:
    """Return the verdicts on the paper's claims, and the comparisons behind them that have a run."""
    shown = ["text", "place", "model", "paper", *MEASURED, "direction", "verdict"]
    columns = ["claim", "place", "model", "text", "verdict", "reason", "paper", "comparison", *MEASURED]
    columns += ["direction", "has_runs", "experiment"]
    measured = attrgetter(*MEASURED)
    rows: list[tuple[Cell, ...]] = [
        (
            *(each.claim.claim, each.claim.place, each.model, each.claim.text, each.verdict),
            *(each.deciding.reason, each.paper, each.deciding.row.comparison, *measured(each.deciding)),
            *(each.direction, int(each.has_runs), each.claim.experiment),
        )
        for each in judged
    ]
    text = caption("claims", confidence=CONFIDENCE, equivalence=EQUIVALENCE)
    claims = Table(CLAIMS, text, columns, rows, shown=shown)
    columns = ["claim", "model", "comparison", "paper", "range_low", "range_high", *MEASURED]
    columns += ["verdict", "reason"]
    rows = [
        (
            *(found.row.claim, found.model, found.row.comparison, published_values(found.row)),
            *(found.row.low, found.row.high, *measured(found), found.verdict, found.reason),
        )
        for each in judged
        for found in each.rows
        if found.has_runs
    ]
    return [claims, Table("claim_comparisons", caption("claim_comparisons"), columns, rows)]


def count_verdicts(judged: Sequence[JudgedClaim]) -> str:
    """Return the number of claims with each verdict, as text; claims without runs are counted apart."""
    counts = Counter(each.verdict if each.has_runs else "without runs" for each in judged)
    order = ("supported", "contradicted", "undecided", "without runs")
    return ", ".join(f"{counts[name]} {name}" for name in order)
