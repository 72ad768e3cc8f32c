"""The paper's claims (`claims.csv`), judged by measured runs.

Each row of the file is a comparison of a claim: a measure of condition A (`ENV METHOD`, at the last
checkpoint unless `first` or `second` follows; `METHOD@MODEL` for another model), its difference from
condition B or its ratio to B, and the range in which the claim places it. Rows of one group must all be
supported; a claim needs all of its groups, or `needed` of them. Rows after a claim's first have its name
alone. Ranges are ours where the paper gives no number: "near-perfect" is above 95%, "ties" is within 5
points, as are changes of scores in points, "about" is within 20% of the paper's value, "does not fall" is
above 90%, "nearly two orders of magnitude" is above 30 times, and a truncated library "meaningfully exceeds"
no library by more than one achievement.

A comparison is supported if its whole interval is in the claimed range, contradicted if all of it is outside,
and undecided otherwise. It is Student's t for new seeds and new tasks of the environment (`inference`). For
shares of successes, it also contains Wilson's, in which each task counts once. Equal values have no interval
and decide nothing. A range with two ends ("ties", "about") has a 90% interval: it is in the range if both
one-sided tests at 5% reject the values outside.

Runs count if they have the settings of the claims' experiments: the values of `preset=paper`, which each of
the experiments has, and the defaults of all other keys that change results, except those in the condition's
name. Evaluations of stored policies have no schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import numpy
import pandas
from msgspec import Struct
from msgspec.structs import replace

from speedrunner.config.compose import group_file
from speedrunner.config.condition import Choice, ModelVariant, Treatment
from speedrunner.config.schema import ClassConfig, Config, ModelOptions, RunConfig
from speedrunner.plain.plain_records import as_written, read_table
from speedrunner.plain.plain_yaml import read_yaml_file
from speedrunner.results.conditions import Condition, find_runs, list_settings, played_models
from speedrunner.results.inference import (
    CONFIDENCE,
    Samples,
    estimate_statistic,
    match_tasks,
    run_values,
    wilson_interval,
)
from speedrunner.results.means import RULES
from speedrunner.results.paper import ENVS, TREATMENTS
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Cell, Table, caption
from speedrunner.store.records import Process

CLAIMS = "claims"
"""Name of the table of verdicts."""

EQUIVALENCE = 2 * CONFIDENCE - 1
"""The interval of two one-sided tests, each at the level of one tail of `CONFIDENCE`'s two-sided test."""

MEASURED = ("measured", "low", "high", "seeds")
"""Columns of both tables."""

Verdict = Literal["contradicted", "undecided", "supported"]

Runs = Mapping["Side", Mapping[int, RunResult]]
"""The finished runs of each side, by seed."""

SCHEDULE = ("run.rollouts", "run.sleep_every", "run.eval_every")
MAX_CALLS = "model.actor.max_calls"
ISOLATION = "sandbox.kind"
"""Depends on what a machine allows; skills do the same under each."""

POINTS = {"first": 0, "second": 1, "": -1}
"""Places of the checkpoints of a side."""


class Side(NamedTuple):
    """One side of a comparison in one environment.

    Attributes:
        model: another model than the comparison's; empty otherwise.
        point: place of its checkpoint.
    """

    env: Choice
    treatment: Treatment
    model: str
    point: int

    def __str__(self) -> str:
        return f"{self.treatment}{'@' * bool(self.model)}{self.model} on {self.env}"


class Claim(Struct, frozen=True):
    """A comparison of a claim. A claim's first comparison describes the claim as well.

    Attributes:
        experiment: the experiment with its runs.
        paper: the paper's value, as printed; empty if it prints none.
        needed: number of groups that must be supported; 0: all.
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
    def ends(self) -> tuple[float, float]:
        """Return the ends of the range."""
        return -inf if self.low is None else self.low, inf if self.high is None else self.high

    def contains(self, value: float | None) -> bool:
        """Return whether a value is known and within the range."""
        return value is not None and self.ends[0] < value < self.ends[1]

    @property
    def is_usd(self) -> bool:
        """Return whether it compares costs."""
        return "usd" in self.measure

    def statistic(self, means: numpy.ndarray) -> numpy.ndarray:
        """Return the compared value from the means of A and B in each environment, of shape (columns, n)."""
        count = 2 if self.b else 1
        own, other = means[::count], means[count - 1 :: count]
        if self.relation != "value":
            own = own - other if self.relation == "difference" else own / other
        averaged: numpy.ndarray = own.mean(axis=0)
        return averaged

    @property
    def pairs(self) -> list[tuple[Side, ...]]:
        """Return A, and B if there is one, in each environment."""
        return [*zip(*(_read_side(text) for text in (self.a, self.b) if text), strict=True)]

    @property
    def comparison(self) -> str:
        """Return the comparison in words."""
        words = {"value": "", "difference": f" minus {self.b}", "ratio": f" divided by {self.b}"}
        model = f" with {self.model}" if self.model else ""
        if self.low is not None and self.high is not None:
            span = f"between {self.low:.3g} and {self.high:.3g}"
        else:
            span = f"above {self.low:.3g}" if self.low is not None else f"below {self.high:.3g}"
        return f"{self.measure} of {self.a}{words[self.relation]}{model} is {span}"


def _read_side(text: str) -> list[Side]:
    """Return a side of `claims.csv` in each environment over which the paper averages."""
    env, name, *at = text.split()
    method, _, model = name.partition("@")
    return [Side(each, TREATMENTS[method], model, POINTS["".join(at)]) for each in ENVS[env]]


class JudgedRow(Struct, frozen=True):
    """A comparison with its measured value.

    Attributes:
        model: the model of the runs.
        has_runs: whether there is a finished run of its conditions.
        seeds: those of finished runs that have all of its values.
        low, high: the interval; `None` if there is none.
        reason: why it is undecided; otherwise empty.
    """

    row: Claim
    model: str
    has_runs: bool
    seeds: int
    measured: float | None = None
    low: float | None = None
    high: float | None = None
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
    def direction(self) -> str:
        """Return how many of the measured values are in their ranges: `7 of 9`."""
        known = [each for each in self.rows if each.measured is not None]
        return f"{sum(each.row.contains(each.measured) for each in known)} of {len(known)}"


@cache
def list_claims() -> list[list[Claim]]:
    """Return the comparisons of each claim, in the order of the paper's sections. One of USD is followed by
    the same by the other cache rules."""
    rows = []
    for row in msgspec.convert(read_table(Path(__file__).with_name("claims.csv")), list[Claim], strict=False):
        others = RULES if row.is_usd else ()
        rows += [row, *(replace(row, measure=f"{row.measure}_{rule}", text="", needed=0) for rule in others)]
    return [list(own) for _, own in groupby(rows, key=lambda row: row.claim)]


def judge_claims(claims: Sequence[Sequence[Claim]], conditions: Sequence[Condition]) -> list[JudgedClaim]:
    """Judge each claim for each played model; a claim about certain models once. Runs with other limits than
    the claims' experiments do not count."""
    judged, models = [], played_models(conditions)
    conditions = keep_counting(conditions)
    for rows in claims:
        named = dict.fromkeys(row.model for row in rows if row.model)
        for model in [ModelVariant(", ".join(named))] if named else models:
            comparisons = [
                judge_row(row, ModelVariant(row.model) if row.model else model, conditions) for row in rows
            ]
            deciding = _find_deciding(comparisons, rows[0].needed)
            judged.append(JudgedClaim(str(model), deciding, comparisons))
    return judged


def _find_deciding(rows: Sequence[JudgedRow], needed: int) -> JudgedRow:
    """Return the comparison whose verdict is the claim's: a measured one if possible."""

    def rank(row: JudgedRow) -> tuple[int, bool]:
        return get_args(Verdict).index(row.verdict), row.measured is None

    groups = [list(own) for _, own in groupby(rows, key=lambda row: row.row.group)]
    worst_first = sorted((min(group, key=rank) for group in groups), key=rank)
    allowed_to_fail = len(groups) - (needed or len(groups))
    verdict = worst_first[allowed_to_fail].verdict
    return next(row for row in worst_first if row.verdict == verdict)


def find_finished(row: Claim, model: ModelVariant, conditions: Sequence[Condition]) -> Runs:
    """Return the runs of a comparison's sides that have finished all of their checkpoints, and as many as the
    comparison needs of their condition."""
    sides = [*chain(*row.pairs)]
    finished = {}
    for side in sides:
        played = ModelVariant(side.model) if side.model else model
        runs = find_runs(conditions, side.env, side.treatment, played).items()
        condition = side._replace(point=0)
        least = 1 + max(0, *(other.point for other in sides if other._replace(point=0) == condition))
        finished[side] = {key: run for key, run in runs if len(run.points) >= least and not run.unfinished}
    return finished


def judge_row(row: Claim, model: ModelVariant, conditions: Sequence[Condition]) -> JudgedRow:
    """Judge a comparison by the finished runs of its conditions."""
    finished = find_finished(row, model, conditions)
    samples = collect_samples(row, finished)
    judged = JudgedRow(row, str(model), any(finished.values()), len(samples.runs))
    if lacking := dict.fromkeys(str(side) for side, runs in finished.items() if not runs):
        return replace(judged, reason=f"no finished run with the experiment's limits of {', '.join(lacking)}")
    if not samples.runs:
        return replace(judged, reason="no seed has all values: no common seed, no prices, or no requests")
    if row.is_usd and not samples.scale:
        return replace(judged, reason="all prices are zero: speedrunner report DIR --prices NAME")
    return judge_samples(judged, samples)


def judge_samples(judged: JudgedRow, samples: Samples) -> JudgedRow:
    """Return a comparison with the measured value, interval and verdict of its samples.

    Args:
        samples: for each environment, arrays with a column for A and one for B, if there is one.
    """
    row = judged.row
    confidence = CONFIDENCE if None in (row.low, row.high) else EQUIVALENCE
    with numpy.errstate(divide="ignore", invalid="ignore"):
        measured = float(numpy.mean([*run_values(samples, row.statistic).values()]))
        found = estimate_statistic(samples, row.statistic, confidence)
    ends = [*found.ends] if found and found.ends else []
    if row.measure == "score" and not row.b and samples.is_share:
        ends += wilson_interval(measured, samples.tasks, confidence)
    if not numpy.isfinite([measured, *ends]).all():
        return replace(judged, reason="the other value is 0 in some episodes, so the ratio has no interval")
    judged = replace(judged, measured=measured)
    if judged.seeds == 1:
        return replace(judged, reason="one seed, and 2 are needed: play others with run.seed=N")
    if not ends:
        return replace(judged, reason="all values are equal, which gives no interval")
    low, high = min(ends), max(ends)
    judged = replace(judged, low=low, high=high)
    least, most = row.ends
    if least < low and high < most:
        return replace(judged, verdict="supported")
    if high < least or low > most:
        return replace(judged, verdict="contradicted")
    return replace(judged, reason="the interval is not wholly inside or outside the range")


def collect_samples(row: Claim, finished: Runs) -> Samples:
    """Return the values by seed, as `judge_samples` expects them."""
    values = {}
    for key in sorted(set.intersection(*map(set, finished.values()))):
        frames = []
        for pair in row.pairs:
            runs = [(finished[side][key], side.point) for side in pair]
            columns = [run.values(run.points[at], row.measure) for run, at in runs]
            frames.append(pandas.concat(columns, axis=1, join="inner"))
        if all(map(len, frames)):
            values[key] = frames
    return match_tasks(values)


@cache
def _experiment_values() -> dict[str, Any]:
    nothing = ClassConfig("-")
    usual = list_settings(Config(RunConfig("-"), nothing, nothing, ModelOptions("-")))
    paper: dict[str, Any] = read_yaml_file(group_file("preset", "paper"))
    return usual | paper


def list_other_settings(config: Config, processes: Sequence[Process] = ()) -> list[str]:
    """Return the settings in which a run differs from the claims' experiments, each with the experiments'
    value: `run.rollouts=4, not 200`. `null` is the default of a key without a value."""
    own = list_settings(config)
    if MAX_CALLS not in own and processes:  # the model config can have a limit, too
        own[MAX_CALLS] = processes[-1].model.role("actor").max_calls
    experiment = _experiment_values()
    evaluates = config.run.start_from is not None and config.run.rollouts == 0
    return [
        f"{key}={as_written(own.get(key))}, not {as_written(experiment.get(key))}"
        for key in {**experiment, **own}
        if key != ISOLATION and own.get(key) != experiment.get(key) and not (evaluates and key in SCHEDULE)
    ]


def keep_counting(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the conditions that have runs that count for claims, with these."""

    def counts(run: RunResult) -> bool:
        return not list_other_settings(run.config, run.processes)

    counting = [
        Condition(each.identity, {seed: run for seed, run in each.runs.items() if counts(run)})
        for each in conditions
    ]
    return [each for each in counting if each.runs]


def note_left_out(conditions: Sequence[Condition]) -> list[str]:
    """Return a line for each condition and each set of settings with which its runs do not count."""
    lines = dict.fromkeys(
        f"{each.identity} does not count for the paper's claims: {'; '.join(others)}"
        for each in conditions
        for run in each.runs.values()
        if (others := list_other_settings(run.config, run.processes))
    )
    return [*lines]


def claim_tables(judged: Sequence[JudgedClaim]) -> list[Table]:
    """Return the verdicts on the paper's claims, and the comparisons behind them that have a run."""
    measured = attrgetter(*MEASURED)
    columns = ["claim", "place", "model", "text", "verdict", "reason", "paper", "comparison", *MEASURED]
    columns += ["direction", "has_runs", "experiment"]
    rows: list[tuple[Cell, ...]] = [
        (
            *(claim.claim.claim, claim.claim.place, claim.model, claim.claim.text, claim.verdict),
            *(claim.deciding.reason, claim.claim.paper, claim.deciding.row.comparison),
            *(*measured(claim.deciding), claim.direction, int(claim.has_runs), claim.claim.experiment),
        )
        for claim in judged
    ]
    text = caption("claims", confidence=CONFIDENCE, equivalence=EQUIVALENCE)
    claims = Table(CLAIMS, text, columns, rows)
    columns = ["claim", "model", "comparison", "range_low", "range_high", *MEASURED, "verdict", "reason"]
    rows = [
        (
            *(found.row.claim, found.model, found.row.comparison, found.row.low, found.row.high),
            *(*measured(found), found.verdict, found.reason),
        )
        for claim in judged
        for found in claim.rows
        if found.has_runs
    ]
    return [claims, Table("claim_comparisons", caption("claim_comparisons"), columns, rows)]


def count_verdicts(judged: Sequence[JudgedClaim]) -> str:
    """Return the number of claims with each verdict, as text; claims without runs are counted apart."""
    counts = Counter(each.verdict if each.has_runs else "without runs" for each in judged)
    order = ("supported", "contradicted", "undecided", "without runs")
    return ", ".join(f"{counts[name]} {name}" for name in order)
