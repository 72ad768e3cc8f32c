"""Judge the paper's claims (`published`) by measured runs.

A comparison is supported if its whole interval is in the range, contradicted if all of it is outside, and
undecided otherwise. The interval is the smallest one that contains two: the bootstrap that resamples seeds,
then episodes, and Student's t over the seeds' values. The bootstrap alone is too narrow below five seeds, t
alone ignores the episodes if the seeds happen to be equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from math import inf
from typing import Literal, get_args

import numpy
import pandas
from msgspec import Struct
from msgspec.structs import astuple, replace

from speedrunner.config.schema import ModelOptions
from speedrunner.results.conditions import Condition
from speedrunner.results.inference import CONFIDENCE, bootstrap_statistic, paper_ttest, seed_values
from speedrunner.results.paper import find_runs, list_gaps, played_models, sweep_command
from speedrunner.results.published import Claim
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Table

CLAIMS = "claims"
"""Name of the table of verdicts."""

Verdict = Literal["contradicted", "undecided", "supported"]

Runs = Mapping[tuple[str, str], Mapping[int, RunResult]]
"""Runs of one model by environment and method, then by seed."""


class JudgedRow(Struct, frozen=True):
    """A comparison with its measured value: the columns of `claim_comparisons`, then `group` and `runs`.

    Attributes:
        low, high: the interval; `None` if there is none.
        seeds: finished seeds that have all of its values.
        reason: why it is undecided; otherwise empty.
        runs: number of finished runs found.
    """

    claim: str
    model: str
    comparison: str
    range_low: float | None
    range_high: float | None
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    verdict: Verdict = "undecided"
    reason: str = ""
    group: str = ""
    runs: int = 0


class JudgedClaim(Struct, frozen=True):
    """A claim with its verdict: the columns of `claims`, then `rows`.

    Attributes:
        model: the model of the runs; several for a claim about several.
        reason, comparison, measured, low, high, seeds: of the comparison that explains the verdict.
        supported: number of supported comparisons `of` so many.
        has_runs: 1 if a comparison has a finished run, else 0.
        missing: missing and unfinished runs; empty if there are none.
        command: the commands that produce these.
    """

    claim: str
    place: str
    model: str
    text: str
    verdict: Verdict
    reason: str
    paper: str
    comparison: str
    measured: float | None
    low: float | None
    high: float | None
    seeds: int
    supported: int
    of: int
    has_runs: int
    missing: str
    command: str
    rows: list[JudgedRow]


def judge_claims(
    claims: Sequence[Sequence[Claim]], conditions: Sequence[Condition], options: str = ""
) -> list[JudgedClaim]:
    """Judge each claim for each played model; a claim about certain models once.

    Args:
        options: further options of the command that fills a gap, such as ` scale=smoke`.
    """
    judged = []
    for rows in claims:
        named = dict.fromkeys(row.model for row in rows if row.model)
        for model in [", ".join(named)] if named else played_models(conditions):
            judged.append(_judge_claim(rows, model, conditions, options))
    return judged


def _judge_claim(
    rows: Sequence[Claim], model: str, conditions: Sequence[Condition], options: str
) -> JudgedClaim:
    played, first, found = played_models(conditions), rows[0], []
    missing: dict[str, None] = {}
    commands: dict[str, None] = {}
    for row in rows:
        name = _find_model(row.model or model, played)
        names = ((env, method) for envs, method, _ in row.sides for env in envs)
        runs = {(env, method): find_runs(conditions, env, method, name) for env, method in names}
        found.append(_judge_row(row, row.model or model, runs))
        if gaps := list_gaps(runs):
            missing |= dict.fromkeys(gaps)
            own = played.get(name) or ModelOptions(name)
            commands[sweep_command(first.experiment, own, options)] = None
    verdict, deciding = _decide(found, first.needed)
    return JudgedClaim(
        *(first.claim, first.place, model, first.text, verdict, deciding.reason, first.paper),
        *(deciding.comparison, deciding.measured, deciding.low, deciding.high, deciding.seeds),
        supported=sum(each.verdict == "supported" for each in found),
        of=len(found),
        has_runs=int(any(each.runs for each in found)),
        missing="; ".join(missing),
        command="; ".join(commands),
        rows=found,
    )


def _find_model(wanted: str, played: Mapping[str, ModelOptions]) -> str:
    """Return the played model of a name: the model itself, else a variant with the same options."""
    variants = (name for name in played if name.startswith(f"{wanted}-"))
    same = (name for name in variants if not (own := played[name]).context and not own.actor | own.inducer)
    return wanted if wanted in played else next(same, wanted)


def _decide(rows: Sequence[JudgedRow], needed: int) -> tuple[Verdict, JudgedRow]:
    """Return the verdict on a claim, and the comparison that explains it: a measured one if possible."""
    groups = [list(own) for _, own in groupby(rows, key=lambda each: each.group)]
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


def _judge_row(row: Claim, model: str, runs: Runs) -> JudgedRow:
    finished = {
        names: {seed: run for seed, run in own.items() if run.points and not run.unfinished}
        for names, own in runs.items()
    }
    samples, count = _collect_samples(row, finished), sum(map(len, finished.values()))
    found = JudgedRow(row.claim, model, row.comparison, row.low, row.high, seeds=len(samples))
    found = replace(found, group=row.group, runs=count)
    if lacking := [f"{method} on {env}" for (env, method), own in finished.items() if not own]:
        return replace(found, reason=f"no finished run of {', '.join(lacking)}")
    if not samples:
        why = "runs without a common seed, without prices, or without requests"
        return replace(found, reason=f"no seed has all values: {why}")
    if row.measure.endswith("usd") and not any(own.any() for each in samples.values() for own in each):
        return replace(found, reason="all prices are zero: speedrunner report DIR --prices NAME")

    def statistic(means: numpy.ndarray) -> numpy.ndarray:
        own, other = means[:: len(row.sides)], means[len(row.sides) - 1 :: len(row.sides)]
        by_env = {"value": own, "difference": own - other, "ratio": own / other}[row.relation]
        averaged: numpy.ndarray = by_env.mean(axis=0)
        return averaged

    with numpy.errstate(divide="ignore", invalid="ignore"):
        around = bootstrap_statistic(samples, statistic)
        test = paper_ttest([*seed_values(samples, statistic).values()])
    if around is None or test is None or not numpy.isfinite(around.mean):
        return replace(found, reason="the other value is 0, so there is no ratio")
    found = replace(found, measured=around.mean)
    if len(samples) == 1:
        return replace(found, reason="one seed, and 2 are needed: play others with run.seed=N")
    ends = [*(around.ends or ()), *(test.ends or ())]
    if not numpy.isfinite(ends).all():
        return replace(found, reason="the other value is 0 in some episodes, so the ratio has no interval")
    low, high = min(ends), max(ends)
    if low == high and len(samples) == 2:
        return replace(found, reason="2 seeds with equal values give no interval")
    found = replace(found, low=low, high=high)
    least, most = -inf if row.low is None else row.low, inf if row.high is None else row.high
    if least < low and high < most:
        return replace(found, verdict="supported")
    if high < least or low > most:
        return replace(found, verdict="contradicted")
    where = "is at the end of the range" if low == high else "has values inside and outside the range"
    return replace(found, reason=f"the interval {where} ({row.range})")


def _collect_samples(row: Claim, finished: Runs) -> dict[int, list[numpy.ndarray]]:
    """Return the values by seed, as `bootstrap_statistic` expects them: an array for each environment, with
    a column for A and one for B, if there is one."""
    samples = {}
    for seed in sorted(set.intersection(*map(set, finished.values()))):
        arrays = []
        for envs in zip(*(envs for envs, _, _ in row.sides), strict=True):
            columns = []
            for env, (_, method, at) in zip(envs, row.sides, strict=True):
                run = finished[env, method][seed]
                columns.append(run.values(run.points[at], row.measure))
            arrays.append(pandas.concat(columns, axis=1, join="inner").to_numpy())
        if all(map(len, arrays)):
            samples[seed] = arrays
    return samples


def claim_tables(judged: Sequence[JudgedClaim]) -> list[Table]:
    """Return the verdicts on the paper's claims, and the comparisons behind them that have a run."""
    text = (
        "The paper's claims, judged by our runs at the last checkpoint. A claim is supported if the interval"
        " of each of its comparisons is in the claimed range, contradicted if that of one is outside, and"
        f" undecided otherwise. Intervals ({CONFIDENCE:.0%}) contain those of a bootstrap over seeds and"
        " episodes and of Student's t over seeds. They are not corrected for the number of claims. The"
        " measured value is that of the comparison that explains the verdict; claim_comparisons has all."
    )
    shown = ["text", "place", "model", "paper", "measured", "low", "high", "seeds", "verdict"]
    rows = [astuple(each)[:-1] for each in judged]
    claims = Table(CLAIMS, text, JudgedClaim.__struct_fields__[:-1], rows, shown=shown)
    text = (
        "The comparisons behind the paper's claims: the claimed range, our value with its interval, and the"
        " verdict. Comparisons without a run are left out."
    )
    rows = [astuple(row)[:-2] for each in judged for row in each.rows if row.runs]
    return [claims, Table("claim_comparisons", text, JudgedRow.__struct_fields__[:-2], rows)]


def count_verdicts(judged: Sequence[JudgedClaim]) -> str:
    """Return the number of claims with each verdict, as text; claims without runs are counted apart."""
    counts = Counter(each.verdict if each.has_runs else "without runs" for each in judged)
    order = ("supported", "contradicted", "undecided", "without runs")
    return ", ".join(f"{counts[name]} {name}" for name in order)
