"""Judge the paper's claims by measured runs. `claims.csv` has the claims.

Each row of the file is a comparison of a claim: a measure of condition A (`ENV METHOD`, at the last
checkpoint unless `first` follows), its difference from condition B or its ratio to B, and the range in which
the claim places it. Rows of one group must all be supported; a claim needs all of its groups, or `needed` of
them. Rows after a claim's first have its name alone. Ranges are ours where the paper gives no number:
"near-perfect" is above 95%, "ties" is within 5 points, "about" is within 20% of the paper's value, "nearly
two orders of magnitude" is above 30 times, and a truncated library "meaningfully exceeds" no library by more
than one achievement.

A comparison is supported if its whole interval is in the range, contradicted if all of it is outside, and
undecided otherwise. The interval is the smallest one that contains two: the bootstrap that resamples seeds,
then episodes, and Student's t over the seeds' values. The bootstrap alone is too narrow below five seeds, t
alone ignores the episodes if the seeds happen to be equal.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from math import inf
from pathlib import Path
from typing import Literal

import msgspec
import numpy
import pandas
from msgspec.structs import replace

from speedrunner.config.schema import ModelOptions
from speedrunner.results.conditions import Condition
from speedrunner.results.inference import CONFIDENCE, bootstrap_statistic, paper_ttest, seed_values
from speedrunner.results.paper import SEEDS, find_runs, list_envs, list_gaps, played_models, sweep_command
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Cell, Table

FILE = Path(__file__).with_name("claims.csv")

CLAIMS = "claims"
"""Name of the table of verdicts."""

Verdict = Literal["supported", "contradicted", "undecided"]

STRONGEST: tuple[Verdict, ...] = ("contradicted", "undecided", "supported")
"""Verdicts on the comparisons of a group: the first that one of them has is the group's."""

EPISODE_MEASURES = ("score", "output", "llm_calls", "cost_usd", "usd")
"""Measures of test episodes; others are columns of checkpoints."""

PRICED = ("cost_usd", "usd")

MIN_SEEDS = 2
"""Fewer seeds give no interval for other libraries of the same method."""

Runs = Mapping[tuple[str, str], Mapping[int, RunResult]]
"""Runs of one model by environment and method, then by seed."""


class Row(msgspec.Struct, frozen=True):
    """A row of `claims.csv`: a comparison. A claim's first row describes the claim as well.

    Attributes:
        claim: its name.
        place: section of the paper, and figure or table.
        experiment: the experiment with its runs.
        paper: the paper's value, as printed; empty if it prints none.
        needed: number of groups that must be supported; 0: all.
        text: the claim in our words.
        group: number of the group of comparisons.
        model: the model that the claim is about; empty: each played model.
        a, b: the conditions. `scienceworld` is the mean of the comparison over both families.
        low, high: the range; `None`: unbounded.
    """

    claim: str
    place: str = ""
    experiment: str = ""
    paper: str = ""
    needed: int = 0
    text: str = ""
    group: str = ""
    model: str = ""
    measure: str = ""
    relation: Literal["value", "difference", "ratio"] = "value"
    a: str = ""
    b: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def sides(self) -> list[tuple[str, str, int]]:
        """Return environment, method and place of the checkpoint of A, and of B if there is one."""
        words = (side.split() for side in (self.a, self.b) if side)
        return [(env, method, 0 if at else -1) for env, method, *at in words]

    @property
    def comparison(self) -> str:
        """Return the comparison in words."""
        (env, method, _), *others = self.sides
        words = [f"{self.measure} of {method} on {env}"]
        for other_env, other_method, at in others:
            words.append("minus" if self.relation == "difference" else "divided by")
            words.append("that" if other_method == method else other_method)
            words += [f"on {other_env}"] * (other_env != env) + ["at the start"] * (at == 0)
        words += [f"with {self.model}"] * bool(self.model)
        return " ".join([*words, f"is {self.range}"])

    @property
    def range(self) -> str:
        """Return the range in words."""
        if self.low is not None and self.high is not None:
            return f"between {self.low:.3g} and {self.high:.3g}"
        return f"above {self.low:.3g}" if self.low is not None else f"below {self.high:.3g}"


class Compared(msgspec.Struct, frozen=True):
    """A comparison with its measured value.

    Attributes:
        seeds: finished seeds that have all of its values.
        runs: number of finished runs found.
        reason: why it is undecided; otherwise empty.
        low, high: the interval; `None` if there is none.
    """

    row: Row
    seeds: int
    runs: int
    verdict: Verdict = "undecided"
    reason: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None


class Judged(msgspec.Struct, frozen=True):
    """A claim with its verdict.

    Attributes:
        claim: its first row.
        model: the model of the runs; several for a claim about several.
        compared: all comparisons.
        deciding: the comparison that explains the verdict.
        missing: missing and unfinished runs; empty if there are none.
        commands: the commands that produce these.
    """

    claim: Row
    model: str
    verdict: Verdict
    compared: list[Compared]
    deciding: Compared
    missing: str
    commands: list[str]

    @property
    def has_runs(self) -> bool:
        """Return whether a comparison has a finished run."""
        return any(each.runs for each in self.compared)


@cache
def list_claims() -> list[list[Row]]:
    """Return the rows of each claim, in the order of the paper's sections."""
    with FILE.open(newline="", encoding="utf-8") as file:
        known = [{name: text for name, text in row.items() if text} for row in csv.DictReader(file)]
    rows = msgspec.convert(known, list[Row], strict=False)
    return [list(own) for _, own in groupby(rows, key=lambda row: row.claim)]


def judge_claims(
    claims: Sequence[Sequence[Row]], conditions: Sequence[Condition], options: str = ""
) -> list[Judged]:
    """Judge each claim for each played model; a claim about certain models once.

    Args:
        options: further options of the command that fills a gap, such as ` scale=smoke`.
    """
    played = played_models(conditions)
    judged = []
    for rows in claims:
        named = dict.fromkeys(row.model for row in rows if row.model)
        for model in [", ".join(named)] if named else played:
            judged.append(_judge(rows, model, played, conditions, options))
    return judged


def _judge(
    rows: Sequence[Row],
    model: str,
    played: Mapping[str, ModelOptions],
    conditions: Sequence[Condition],
    options: str,
) -> Judged:
    asked: dict[str, dict[tuple[str, str], Mapping[int, RunResult]]] = {}
    compared = []
    for row in rows:
        name = _find_model(row.model or model, played)
        runs = asked.setdefault(name, {})
        for env, method in ((env, method) for side, method, _ in row.sides for env in list_envs(side)):
            runs[env, method] = find_runs(conditions, env, method, name)
        compared.append(_compare(row, runs))
    groups: dict[str, list[Verdict]] = {}
    for each in compared:
        groups.setdefault(each.row.group, []).append(each.verdict)
    verdicts = {group: min(own, key=STRONGEST.index) for group, own in groups.items()}
    counts, needed = Counter(verdicts.values()), rows[0].needed or len(groups)
    verdict: Verdict = "undecided"
    if counts["supported"] >= needed:
        verdict = "supported"
    elif len(groups) - counts["contradicted"] < needed:
        verdict = "contradicted"
    explaining = [each for each in compared if verdicts[each.row.group] == each.verdict == verdict]
    experiment = rows[0].experiment
    gaps = {name: list_gaps(runs, SEEDS.get(experiment, 3)) for name, runs in asked.items()}
    return Judged(
        claim=rows[0],
        model=model,
        verdict=verdict,
        compared=compared,
        deciding=min(explaining or compared, key=lambda each: each.value is None),
        missing="; ".join(dict.fromkeys(chain(*gaps.values()))),
        commands=[
            sweep_command(experiment, played.get(name) or ModelOptions(name), options)
            for name, own in gaps.items()
            if own
        ],
    )


def _find_model(wanted: str, played: Mapping[str, ModelOptions]) -> str:
    """Return the played model of a name: the model itself, else a variant with the same options."""
    variants = (
        name
        for name, options in played.items()
        if name.startswith(f"{wanted}-")
        and options.context is None
        and not options.actor
        and not options.inducer
    )
    return wanted if wanted in played else next(variants, wanted)


def _compare(row: Row, runs: Runs) -> Compared:
    finished = {
        (env, method): {s: run for s, run in runs[env, method].items() if run.points and not run.unfinished}
        for side, method, _ in row.sides
        for env in list_envs(side)
    }
    samples = collect_samples(row, finished)
    count = len({id(run) for own in finished.values() for run in own.values()})
    found = Compared(row, len(samples), count)
    if lacking := [f"{method} on {env}" for (env, method), own in finished.items() if not own]:
        return replace(found, reason=f"no finished run of {', '.join(lacking)}")
    if not samples:
        why = "runs without a common seed, without prices, or without requests"
        return replace(found, reason=f"no seed has all values: {why}")
    if row.measure in PRICED and not any(own.any() for each in samples.values() for own in each):
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
    found = replace(found, value=around.mean)
    if len(samples) < MIN_SEEDS:
        return replace(found, reason=f"one seed, and {MIN_SEEDS} are needed: play others with run.seed=N")
    ends = [*(around.ends or ()), *(test.ends or ())]
    if not numpy.isfinite(ends).all():
        return replace(found, reason="the other value is 0 in some episodes, so the ratio has no interval")
    low, high = min(ends), max(ends)
    if low == high and len(samples) == MIN_SEEDS:
        return replace(found, reason=f"{MIN_SEEDS} seeds with equal values give no interval")
    found = replace(found, low=low, high=high)
    least, most = -inf if row.low is None else row.low, inf if row.high is None else row.high
    if least < low and high < most:
        return replace(found, verdict="supported")
    if high < least or low > most:
        return replace(found, verdict="contradicted")
    where = "is at the end of the range" if low == high else "has values inside and outside the range"
    return replace(found, reason=f"the interval {where} ({row.range})")


def collect_samples(row: Row, finished: Runs) -> dict[int, list[numpy.ndarray]]:
    """Return the values by seed, as `bootstrap_statistic` expects them.

    The columns are those of A and of B (if there is one), for each environment. Both are drawn together if
    they have test episodes in common.
    """
    samples = {}
    for seed in sorted(set.intersection(*map(set, finished.values()))):
        arrays: list[numpy.ndarray] = []
        for envs in zip(*(list_envs(env) for env, _, _ in row.sides), strict=True):
            columns = [
                _list_values(finished[env, method][seed], row.measure, at)
                for env, (_, method, at) in zip(envs, row.sides, strict=True)
            ]
            joined = pandas.concat(columns, axis=1, join="inner")
            arrays += [joined.to_numpy()] if len(joined) else [each.to_numpy()[:, None] for each in columns]
        if all(map(len, arrays)):
            samples[seed] = arrays
    return samples


def _list_values(run: RunResult, measure: str, at: int) -> pandas.Series[float]:
    """Return the known values of a measure: of the test episodes, or the one of the library."""
    point = run.points[at]
    if measure in EPISODE_MEASURES:
        return run.values(point, measure)
    return pandas.Series([float(run.checkpoints[measure][point])]).dropna()


def claim_tables(judged: Sequence[Judged]) -> list[Table]:
    """Return the verdicts on the paper's claims, and the comparisons behind them that have a run."""
    text = (
        "The paper's claims, judged by our runs at the last checkpoint. A claim is supported if the interval"
        " of each of its comparisons is in the claimed range, contradicted if that of one is outside, and"
        f" undecided otherwise. Intervals ({CONFIDENCE:.0%}) contain those of a bootstrap over seeds and"
        " episodes and of Student's t over seeds. They are not corrected for the number of claims. The"
        " measured value is that of the comparison that explains the verdict; claim_comparisons has all."
    )
    columns = ["claim", "place", "model", "text", "verdict", "reason", "paper", "comparison", "measured",
               "low", "high", "seeds", "supported", "of", "has_runs", "missing", "command"]  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for each in judged:
        claim, deciding = each.claim, each.deciding
        supported = sum(own.verdict == "supported" for own in each.compared)
        rows.append(
            (
                *(claim.claim, claim.place, each.model, claim.text, each.verdict, deciding.reason),
                *(claim.paper, deciding.row.comparison, deciding.value, deciding.low, deciding.high),
                *(deciding.seeds, supported, len(each.compared)),
                *(int(each.has_runs), each.missing, "; ".join(each.commands)),
            )
        )
    shown = ["text", "place", "model", "paper", "measured", "low", "high", "seeds", "verdict"]
    claims = Table(CLAIMS, text, columns, rows, shown=shown)
    comparisons: list[tuple[Cell, ...]] = [
        (
            *(own.row.claim, own.row.model or each.model, own.row.comparison, own.row.low, own.row.high),
            *(own.value, own.low, own.high, own.seeds, own.verdict, own.reason),
        )
        for each in judged
        for own in each.compared
        if own.runs
    ]
    columns = ["claim", "model", "comparison", "range_low", "range_high", "measured", "low", "high", "seeds",
               "verdict", "reason"]  # fmt: skip
    text = (
        "The comparisons behind the paper's claims: the claimed range, our value with its interval, and the"
        " verdict. Comparisons without a run are left out."
    )
    return [claims, Table("claim_comparisons", text, columns, comparisons)]


def count_verdicts(judged: Sequence[Judged]) -> str:
    """Return the number of claims with each verdict, as text; claims without runs are counted apart."""
    counts = Counter(each.verdict if each.has_runs else "without runs" for each in judged)
    order = ("supported", "contradicted", "undecided", "without runs")
    return ", ".join(f"{counts[name]} {name}" for name in order)
