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
from dataclasses import dataclass
from functools import cache
from itertools import groupby
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


class Mean(msgspec.Struct, frozen=True):
    """The mean of a measure over the test episodes of a checkpoint, or the measure of its library.

    Attributes:
        env: `scienceworld`: the mean of the comparison over both families.
    """

    measure: str
    env: str
    method: str
    at: Literal["first", "last"] = "last"


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
        low, high: the interval; `None` if there is none.
        seeds: finished seeds that have all of its values.
        runs: number of finished runs found.
        reason: why it is undecided; otherwise empty.
    """

    comparison: ClaimComparison
    verdict: Verdict
    value: float | None
    low: float | None
    high: float | None
    seeds: int
    runs: int
    reason: str


class Judged(msgspec.Struct, frozen=True):
    """A claim with its verdict.

    Attributes:
        model: the model of the runs; several for a claim about several.
        groups: as in the claim.
        deciding: the comparison that explains the verdict.
        missing: missing and unfinished runs; empty if there are none.
        commands: the commands that produce these.
    """

    claim: Claim
    model: str
    verdict: Verdict
    groups: list[list[JudgedComparison]]
    deciding: JudgedComparison
    missing: str
    commands: list[str]

    @property
    def compared(self) -> list[JudgedComparison]:
        """Return all comparisons."""
        return [each for group in self.groups for each in group]

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
        needed = int(first["needed"] or len(groups))
        about = (first["text"], first["place"], first["experiment"], first["paper"])
        found.append(Claim(name, *about, groups, needed))
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
        named = [each.model for group in claim.groups for each in group if each.model]
        for model in [", ".join(dict.fromkeys(named))] if named else played:
            judged.append(_judge(claim, model, played, conditions, options))
    return judged


@dataclass(frozen=True)
class _Runs:
    """Finds the runs of one model, and remembers which were needed."""

    conditions: Sequence[Condition]
    model: str
    asked: dict[tuple[str, str], Mapping[int, RunResult]]

    def finished(self, env: str, method: str) -> dict[int, RunResult]:
        """Return the finished runs of an environment and method, by seed."""
        if (env, method) not in self.asked:
            self.asked[env, method] = find_runs(self.conditions, env, method, self.model)
        runs = self.asked[env, method]
        return {seed: run for seed, run in runs.items() if len(run.checkpoints) and not run.unfinished}


def _judge(
    claim: Claim,
    model: str,
    played: Mapping[str, ModelOptions],
    conditions: Sequence[Condition],
    options: str,
) -> Judged:
    finders: dict[str, _Runs] = {}

    def find(wanted: str) -> _Runs:
        variants = (
            each
            for each, options in played.items()
            if each.startswith(f"{wanted}-")
            and options.context is None
            and not options.actor
            and not options.inducer
        )
        name = wanted if wanted in played else next(variants, wanted)
        return finders.setdefault(name, _Runs(conditions, name, {}))

    groups = [[_compare(each, find(each.model or model)) for each in group] for group in claim.groups]
    verdict = _verdict(groups, claim.needed)
    gaps = {name: list_gaps(runs.asked, SEEDS.get(claim.experiment, 3)) for name, runs in finders.items()}
    return Judged(
        claim=claim,
        model=model,
        verdict=verdict,
        groups=groups,
        deciding=_choose(groups, verdict),
        missing="; ".join(dict.fromkeys(gap for own in gaps.values() for gap in own)),
        commands=[
            sweep_command(claim.experiment, played.get(name) or ModelOptions(name), options)
            for name, own in gaps.items()
            if own
        ],
    )


def _verdict(groups: Sequence[Sequence[JudgedComparison]], needed: int) -> Verdict:
    verdicts = Counter(map(_verdict_of_group, groups))
    if verdicts["supported"] >= needed:
        return "supported"
    return "contradicted" if len(groups) - verdicts["contradicted"] < needed else "undecided"


def _verdict_of_group(group: Sequence[JudgedComparison]) -> Verdict:
    verdicts = {each.verdict for each in group}
    if "contradicted" in verdicts:
        return "contradicted"
    return "undecided" if "undecided" in verdicts else "supported"


def _choose(groups: Sequence[Sequence[JudgedComparison]], verdict: Verdict) -> JudgedComparison:
    """Return a comparison that explains the claim's verdict, preferably a measured one."""
    fitting = [each for group in groups if _verdict_of_group(group) == verdict for each in group]
    alike = [each for each in fitting if each.verdict == verdict] or [
        each for group in groups for each in group
    ]
    return next((each for each in alike if each.value is not None), alike[0])


def _compare(comparison: ClaimComparison, runs: _Runs) -> JudgedComparison:
    import numpy

    samples, found = _collect(comparison, runs)

    def undecided(reason: str, value: float | None = None) -> JudgedComparison:
        return JudgedComparison(comparison, "undecided", value, None, None, len(samples), found, reason)

    if not samples:
        return undecided(_explain_gap(comparison, runs))
    if comparison.own.measure in PRICED and not any(own.any() for each in samples.values() for own in each):
        return undecided("all prices are zero: speedrunner report DIR --prices NAME")

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
        return undecided("the other value is 0, so there is no ratio")
    if len(samples) < MIN_SEEDS:
        return undecided(f"one seed, and {MIN_SEEDS} are needed: play others with run.seed=N", around.mean)
    ends = [end for end in (around.low, around.high, test.low, test.high) if end is not None]
    if not numpy.isfinite(ends).all():
        return undecided("the other value is 0 in some episodes, so the ratio has no interval", around.mean)
    low, high = min(ends), max(ends)
    if low == high and len(samples) == MIN_SEEDS:
        return undecided(f"{MIN_SEEDS} seeds with equal values give no interval", around.mean)
    verdict = _place(low, high, comparison)
    where = "is at the end of the range" if low == high else "has values inside and outside the range"
    return JudgedComparison(
        comparison,
        verdict,
        around.mean,
        low,
        high,
        len(samples),
        found,
        f"the interval {where} ({comparison.range})" if verdict == "undecided" else "",
    )


def _place(low: float, high: float, comparison: ClaimComparison) -> Verdict:
    """Return the verdict of an interval."""
    least = -float("inf") if comparison.low is None else comparison.low
    most = float("inf") if comparison.high is None else comparison.high
    if least < low and high < most:
        return "supported"
    return "contradicted" if high < least or low > most else "undecided"


def _explain_gap(comparison: ClaimComparison, runs: _Runs) -> str:
    """Return why a comparison has no value."""
    lacking = [
        f"{mean.method} on {env}"
        for mean in comparison.means
        for env in list_envs(mean.env)
        if not runs.finished(env, mean.method)
    ]
    if lacking:
        return f"no finished run of {', '.join(dict.fromkeys(lacking))}"
    return "no seed has all values: runs without a common seed, without prices, or without requests"


def _collect(comparison: ClaimComparison, runs: _Runs) -> tuple[dict[int, list[ndarray]], int]:
    """Return the values by seed, as `bootstrap_statistic` expects them, and the number of runs found.

    The columns are own and other mean (if there is one), for each environment. Both are drawn together if
    they have test episodes in common.
    """
    by_env = [
        *zip(
            *(
                [(mean, runs.finished(env, mean.method)) for env in list_envs(mean.env)]
                for mean in comparison.means
            ),
            strict=True,
        )
    ]
    everything = [found for cell in by_env for _, found in cell]
    samples = {}
    for seed in sorted(set.intersection(*map(set, everything))):
        arrays = [
            array for cell in by_env for array in _pair([_list_values(own[seed], mean) for mean, own in cell])
        ]
        if all(map(len, arrays)):
            samples[seed] = arrays
    return samples, len({id(run) for found in everything for run in found.values()})


def _pair(columns: Sequence[pandas.Series[float]]) -> list[ndarray]:
    """Return the columns as one array of their common rows, or as an array each if they have none."""
    joined = pandas.concat(columns, axis=1, join="inner")
    return [joined.to_numpy()] if len(joined) else [each.to_numpy()[:, None] for each in columns]


def _list_values(run: RunResult, mean: Mean) -> pandas.Series[float]:
    """Return the known values of a measure: of the test episodes, or the one of the library."""
    point = run.points[0 if mean.at == "first" else -1]
    if mean.measure in EPISODE_MEASURES:
        return run.values(point, mean.measure)
    return pandas.Series([float(run.checkpoints[mean.measure][point])]).dropna()


COLUMNS = (
    *("claim", "place", "model", "text", "verdict", "reason", "paper"),
    *("comparison", "measured", "low", "high", "seeds", "supported", "of", "has_runs", "missing", "command"),
)


def claim_tables(judged: Sequence[Judged]) -> list[Table]:
    """Return the verdicts on the paper's claims, and the comparisons behind them."""
    text = (
        "The paper's claims, judged by our runs at the last checkpoint. A claim is supported if the interval"
        " of each of its comparisons is in the claimed range, contradicted if that of one is outside, and"
        f" undecided otherwise. Intervals ({CONFIDENCE:.0%}) contain those of a bootstrap over seeds and"
        " episodes and of Student's t over seeds. They are not corrected for the number of claims. The"
        " measured value is that of the comparison that explains the verdict; claim_comparisons has all."
    )
    shown = [
        [
            *map(latex, (each.claim.text, each.claim.place, each.model, each.claim.paper)),
            _latex_interval(each.deciding),
            latex(each.deciding.seeds),
            latex(each.verdict),
        ]
        for each in judged
    ]
    heads = [*map(latex, ("claim", "place", "model", "paper", "ours", "seeds", "verdict"))]
    claims = Table(CLAIMS, text, COLUMNS, [_claim_row(each) for each in judged], shown=(heads, shown))
    return [claims, _comparisons(judged)]


def count_verdicts(judged: Sequence[Judged]) -> str:
    """Return the number of claims with each verdict, as text; claims without runs are counted apart."""
    counts = Counter(each.verdict if each.has_runs else "without runs" for each in judged)
    order = ("supported", "contradicted", "undecided", "without runs")
    return ", ".join(f"{counts[name]} {name}" for name in order)


def _claim_row(each: Judged) -> tuple[Cell, ...]:
    verdicts = Counter(compared.verdict for compared in each.compared)
    deciding = each.deciding
    return (
        *(each.claim.name, each.claim.place, each.model, each.claim.text, each.verdict, deciding.reason),
        *(each.claim.paper, deciding.comparison.text, deciding.value, deciding.low, deciding.high),
        *(deciding.seeds, verdicts["supported"], len(each.compared)),
        *(int(each.has_runs), each.missing, "; ".join(each.commands)),
    )


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


def _latex_interval(each: JudgedComparison) -> str:
    if each.value is None or each.low is None:
        return latex(each.value)
    return f"{latex(each.value)} ({latex(each.low)} to {latex(each.high)})"
