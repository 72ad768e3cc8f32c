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
from typing import TYPE_CHECKING, Literal

import msgspec
import pandas

from speedrunner.config.schema import ModelOptions
from speedrunner.results.conditions import Condition
from speedrunner.results.inference import CONFIDENCE, bootstrap_statistic, ttest_seeds
from speedrunner.results.paper import SEEDS, find_runs, list_envs, list_gaps, played_models, sweep_command
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Cell, Table, latex

if TYPE_CHECKING:
    from numpy import ndarray

FILE = Path(__file__).with_name("claims.csv")

CLAIMS = "claims"
"""Name of the table of verdicts."""

Verdict = Literal["supported", "contradicted", "undecided"]

EPISODE_MEASURES = ("score", "output", "llm_calls", "cost_usd", "usd")
"""Measures of test episodes; others are columns of checkpoints."""

PRICED = ("cost_usd", "usd")

MIN_SEEDS = 2
"""Fewer seeds give no interval for other libraries of the same method."""

Runs = Mapping[tuple[str, str], Mapping[int, RunResult]]
"""Runs of one model by environment and method, then by seed."""


class Mean(msgspec.Struct, frozen=True):
    """The mean of a measure over the test episodes of a checkpoint, or the measure of its library.

    Attributes:
        env: `scienceworld`: the mean of the comparison over both families.
    """

    measure: str
    env: str
    method: str
    at: Literal["first", "last"] = "last"

    @property
    def places(self) -> list[tuple[str, str]]:
        """Return the environments and methods of its runs."""
        return [(env, self.method) for env in list_envs(self.env)]


class ClaimComparison(msgspec.Struct, frozen=True):
    """A mean, its difference from another or its ratio to another, and the claimed range.

    Attributes:
        low, high: the range; `None`: unbounded.
        model: the model of the claim; empty: each played model.
    """

    form: Literal["value", "difference", "ratio"]
    own: Mean
    other: Mean | None
    low: float | None
    high: float | None
    model: str

    @property
    def means(self) -> list[Mean]:
        """Return the means that it needs."""
        return [self.own] if self.other is None else [self.own, self.other]

    @property
    def text(self) -> str:
        """Return the comparison in words."""
        own, other = self.own, self.other
        words = [f"{own.measure} of {own.method} on {own.env}"]
        if other is not None:
            words.append("minus" if self.form == "difference" else "divided by")
            words.append("that" if other.method == own.method else other.method)
            words += [f"on {other.env}"] * (other.env != own.env) + ["at the start"] * (other.at == "first")
        words += [f"with {self.model}"] * bool(self.model)
        return " ".join([*words, f"is {self.range}"])

    @property
    def range(self) -> str:
        """Return the range in words."""
        if self.low is not None and self.high is not None:
            return f"between {self.low:.3g} and {self.high:.3g}"
        return f"above {self.low:.3g}" if self.low is not None else f"below {self.high:.3g}"


class Claim(msgspec.Struct, frozen=True):
    """One claim of the paper.

    Attributes:
        text: the claim in our words.
        place: section of the paper, and figure or table.
        experiment: the experiment with its runs.
        paper: the paper's value, as printed; empty if it prints none.
        groups: comparisons. A group is supported if all of its comparisons are, and contradicted if one is.
        needed: number of groups that must be supported.
    """

    name: str
    text: str
    place: str
    experiment: str
    paper: str
    groups: list[list[ClaimComparison]]
    needed: int


class JudgedComparison(msgspec.Struct, frozen=True):
    """A comparison with its measured value.

    Attributes:
        seeds: finished seeds that have all of its values.
        runs: number of finished runs found.
        reason: why it is undecided; otherwise empty.
        low, high: the interval; `None` if there is none.
    """

    comparison: ClaimComparison
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
        model: the model of the runs; several for a claim about several.
        compared: all comparisons.
        deciding: the comparison that explains the verdict.
        missing: missing and unfinished runs; empty if there are none.
        commands: the commands that produce these.
    """

    claim: Claim
    model: str
    verdict: Verdict
    compared: list[JudgedComparison]
    deciding: JudgedComparison
    missing: str
    commands: list[str]

    @property
    def has_runs(self) -> bool:
        """Return whether a comparison has a finished run."""
        return any(each.runs for each in self.compared)


@cache
def list_claims() -> list[Claim]:
    """Return the claims, in the order of the paper's sections."""
    with FILE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = []
    for name, own in groupby(rows, key=lambda row: row["claim"]):
        lines = list(own)
        groups = [[*map(_comparison, group)] for _, group in groupby(lines, key=lambda row: row["group"])]
        first = lines[0]
        about = (first["text"], first["place"], first["experiment"], first["paper"])
        found.append(Claim(name, *about, groups, int(first["needed"] or len(groups))))
    return found


def _comparison(row: Mapping[str, str]) -> ClaimComparison:
    names = ("measure", "env", "method", "at")
    own, other = (
        dict(zip(names, (row["measure"], *row[which].split()), strict=False)) if row[which] else None
        for which in ("a", "b")
    )
    low, high = (float(row[end]) if row[end] else None for end in ("low", "high"))
    found = {"form": row["relation"], "own": own, "other": other, "low": low, "high": high}
    return msgspec.convert(found | {"model": row["model"]}, ClaimComparison)


def judge_claims(claims: Sequence[Claim], conditions: Sequence[Condition], options: str = "") -> list[Judged]:
    """Judge each claim for each played model; a claim about certain models once.

    Args:
        options: further options of the command that fills a gap, such as ` scale=smoke`.
    """
    played = played_models(conditions)
    judged = []
    for claim in claims:
        named = dict.fromkeys(each.model for group in claim.groups for each in group if each.model)
        for model in [", ".join(named)] if named else played:
            judged.append(_judge(claim, model, played, conditions, options))
    return judged


def _judge(
    claim: Claim,
    model: str,
    played: Mapping[str, ModelOptions],
    conditions: Sequence[Condition],
    options: str,
) -> Judged:
    by_model: dict[str, dict[tuple[str, str], Mapping[int, RunResult]]] = {}
    groups = []
    for group in claim.groups:
        groups.append(list[JudgedComparison]())
        for comparison in group:
            name = _find_model(comparison.model or model, played)
            runs = by_model.setdefault(name, {})
            for place in chain(*(mean.places for mean in comparison.means)):
                if place not in runs:
                    runs[place] = find_runs(conditions, *place, name)
            groups[-1].append(_compare(comparison, runs))
    verdicts = [*map(_join_verdicts, groups)]
    verdict: Verdict = "undecided"
    if verdicts.count("supported") >= claim.needed:
        verdict = "supported"
    elif len(groups) - verdicts.count("contradicted") < claim.needed:
        verdict = "contradicted"
    compared = [*chain(*groups)]
    explaining = [
        each
        for group, joined in zip(groups, verdicts, strict=True)
        for each in group
        if joined == each.verdict == verdict
    ]
    gaps = {name: list_gaps(runs, SEEDS.get(claim.experiment, 3)) for name, runs in by_model.items()}
    return Judged(
        claim=claim,
        model=model,
        verdict=verdict,
        compared=compared,
        deciding=min(explaining or compared, key=lambda each: each.value is None),
        missing="; ".join(dict.fromkeys(chain(*gaps.values()))),
        commands=[
            sweep_command(claim.experiment, played.get(name) or ModelOptions(name), options)
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


def _join_verdicts(group: Sequence[JudgedComparison]) -> Verdict:
    """Return the verdict of a group."""
    found = [each.verdict for each in group]
    order: tuple[Verdict, ...] = ("contradicted", "undecided")
    return next((verdict for verdict in order if verdict in found), "supported")


def _compare(comparison: ClaimComparison, runs: Runs) -> JudgedComparison:
    import numpy

    finished = {
        place: {seed: run for seed, run in runs[place].items() if run.points and not run.unfinished}
        for mean in comparison.means
        for place in mean.places
    }
    samples = _collect(comparison, finished)
    count = len({id(run) for own in finished.values() for run in own.values()})

    def judge(verdict: Verdict, reason: str, *measured: float) -> JudgedComparison:
        return JudgedComparison(comparison, len(samples), count, verdict, reason, *measured)

    if lacking := [f"{method} on {env}" for (env, method), own in finished.items() if not own]:
        return judge("undecided", f"no finished run of {', '.join(lacking)}")
    if not samples:
        why = "runs without a common seed, without prices, or without requests"
        return judge("undecided", f"no seed has all values: {why}")
    if comparison.own.measure in PRICED and not any(own.any() for each in samples.values() for own in each):
        return judge("undecided", "all prices are zero: speedrunner report DIR --prices NAME")

    def statistic(means: ndarray) -> ndarray:
        own, other = (means, means) if comparison.other is None else (means[::2], means[1::2])
        combined = own - other if comparison.form == "difference" else own / other
        averaged: ndarray = (own if comparison.form == "value" else combined).mean(axis=0)
        return averaged

    with numpy.errstate(divide="ignore", invalid="ignore"):
        around = bootstrap_statistic(samples, statistic)
        values = {
            seed: statistic(numpy.concatenate([own.mean(axis=0) for own in arrays])[:, None]).tolist()
            for seed, arrays in samples.items()
        }
        test = ttest_seeds(values)
    if around is None or test is None or not numpy.isfinite(around.mean):
        return judge("undecided", "the other value is 0, so there is no ratio")
    if len(samples) < MIN_SEEDS:
        why = f"one seed, and {MIN_SEEDS} are needed: play others with run.seed=N"
        return judge("undecided", why, around.mean)
    ends = [end for end in (around.low, around.high, test.low, test.high) if end is not None]
    if not numpy.isfinite(ends).all():
        why = "the other value is 0 in some episodes, so the ratio has no interval"
        return judge("undecided", why, around.mean)
    low, high = min(ends), max(ends)
    if low == high and len(samples) == MIN_SEEDS:
        return judge("undecided", f"{MIN_SEEDS} seeds with equal values give no interval", around.mean)
    least = -inf if comparison.low is None else comparison.low
    most = inf if comparison.high is None else comparison.high
    if least < low and high < most:
        return judge("supported", "", around.mean, low, high)
    if high < least or low > most:
        return judge("contradicted", "", around.mean, low, high)
    where = "is at the end of the range" if low == high else "has values inside and outside the range"
    return judge("undecided", f"the interval {where} ({comparison.range})", around.mean, low, high)


def _collect(comparison: ClaimComparison, finished: Runs) -> dict[int, list[ndarray]]:
    """Return the values by seed, as `bootstrap_statistic` expects them.

    The columns are own and other mean (if there is one), for each environment. Both are drawn together if
    they have test episodes in common.
    """
    samples = {}
    for seed in sorted(set.intersection(*map(set, finished.values()))):
        arrays: list[ndarray] = []
        for places in zip(*(mean.places for mean in comparison.means), strict=True):
            columns = [
                _list_values(finished[place][seed], mean)
                for place, mean in zip(places, comparison.means, strict=True)
            ]
            joined = pandas.concat(columns, axis=1, join="inner")
            arrays += [joined.to_numpy()] if len(joined) else [each.to_numpy()[:, None] for each in columns]
        if all(map(len, arrays)):
            samples[seed] = arrays
    return samples


def _list_values(run: RunResult, mean: Mean) -> pandas.Series[float]:
    """Return the known values of a measure: of the test episodes, or the one of the library."""
    point = run.points[0 if mean.at == "first" else -1]
    if mean.measure in EPISODE_MEASURES:
        return run.values(point, mean.measure)
    return pandas.Series([float(run.checkpoints[mean.measure][point])]).dropna()


def claim_tables(judged: Sequence[Judged]) -> list[Table]:
    """Return the verdicts on the paper's claims, and the comparisons behind them."""
    text = (
        "The paper's claims, judged by our runs at the last checkpoint. A claim is supported if the interval"
        " of each of its comparisons is in the claimed range, contradicted if that of one is outside, and"
        f" undecided otherwise. Intervals ({CONFIDENCE:.0%}) contain those of a bootstrap over seeds and"
        " episodes and of Student's t over seeds. They are not corrected for the number of claims. The"
        " measured value is that of the comparison that explains the verdict; claim_comparisons has all."
    )
    columns = ("claim", "place", "model", "text", "verdict", "reason", "paper", "comparison", "measured",
               "low", "high", "seeds", "supported", "of", "has_runs", "missing", "command")  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    shown = []
    for each in judged:
        claim, deciding = each.claim, each.deciding
        supported = sum(own.verdict == "supported" for own in each.compared)
        value = latex(deciding.value)
        if deciding.low is not None:
            value += f" ({latex(deciding.low)} to {latex(deciding.high)})"
        rows.append(
            (
                *(claim.name, claim.place, each.model, claim.text, each.verdict, deciding.reason),
                *(claim.paper, deciding.comparison.text, deciding.value, deciding.low, deciding.high),
                *(deciding.seeds, supported, len(each.compared)),
                *(int(each.has_runs), each.missing, "; ".join(each.commands)),
            )
        )
        about = map(latex, (claim.text, claim.place, each.model, claim.paper))
        shown.append([*about, value, latex(deciding.seeds), latex(each.verdict)])
    heads = ["claim", "place", "model", "paper", "ours", "seeds", "verdict"]
    return [Table(CLAIMS, text, columns, rows, shown=(heads, shown)), _comparisons(judged)]


def _comparisons(judged: Sequence[Judged]) -> Table:
    columns = ("claim", "model", "comparison", "range_low", "range_high", "measured", "low", "high", "seeds",
               "verdict", "reason")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            *(each.claim.name, own.comparison.model or each.model, own.comparison.text),
            *(own.comparison.low, own.comparison.high, own.value, own.low, own.high, own.seeds),
            *(own.verdict, own.reason),
        )
        for each in judged
        for own in each.compared
        if own.runs
    ]
    text = (
        "The comparisons behind the paper's claims: the claimed range, our value with its interval, and the"
        " verdict. Comparisons without a run are left out."
    )
    return Table("claim_comparisons", text, columns, rows)


def count_verdicts(judged: Sequence[Judged]) -> str:
    """Return the number of claims with each verdict, as text; claims without runs are counted apart."""
    counts = Counter(each.verdict if each.has_runs else "without runs" for each in judged)
    order = ("supported", "contradicted", "undecided", "without runs")
    return ", ".join(f"{counts[name]} {name}" for name in order)
