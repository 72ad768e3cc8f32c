"""The seeds that the paper's claims need, from the effects and variances of a pilot.

Test tasks that all seeds share have a variance that more seeds do not reduce. A pilot of few seeds says
little about the variances: the seeds needed are an interval. `stability` has the parts of the variance of a
seed.
"""

from __future__ import annotations

from itertools import product
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy
from scipy.special import nctdtr, stdtrit  # type: ignore[import-untyped]

from speedrunner.plain.console import align_columns
from speedrunner.results.claims import (
    EQUIVALENCE,
    Claim,
    Runs,
    collect_samples,
    find_finished,
    list_claims,
)
from speedrunner.results.conditions import group_runs, played_models
from speedrunner.results.inference import CONFIDENCE, run_values, split_task_variance
from speedrunner.results.means import RULES
from speedrunner.results.pricing import price_list
from speedrunner.results.run_result import RunResult, read_or_describe
from speedrunner.results.writing import caption
from speedrunner.store.discovery import runs_below
from speedrunner.store.files import StorageError

POWER = 0.8
MOST = 200
"""Seeds above which a claim is out of reach."""

PILOT = 5
"""Seeds of a pilot from which a single number of seeds is estimated."""

DRAWS = 400
SEED = 0
"""Fixed, so that the same pilot always needs the same seeds."""

SPAN = (0.1, 0.9)
"""Quantiles of the seeds needed, over effects and variances that the pilot could have come from."""

HEAD = ("claim", "effect", "task sd", "seed sd", "seeds")


class Need(NamedTuple):
    """The seeds that a comparison needs, and why.

    Attributes:
        high, low: ends of the interval; more than `MOST`: out of reach.
        seeds: `None` if the pilot is too small for a single number.
        is_decidable: whether any number of seeds is enough, with these test tasks.
        effect: mean over seeds.
        task_sd, seed_sd: standard deviations of the tasks that all seeds share (0: they share none), and of
            the seeds' values.
    """

    high: int
    low: int
    seeds: int | None
    is_decidable: bool
    effect: float
    task_sd: float
    seed_sd: float

    def show_seeds(self) -> str:
        """Return the seeds as text."""
        if not self.is_decidable:
            return "never"
        low, high = (str(end) if end <= MOST else f"over {MOST}" for end in (self.low, self.high))
        span = low if low == high else f"{low} to {high}"
        return span if self.seeds is None or self.seeds > MOST else f"{self.seeds} ({span})"


def power_lines(folder: Path, prices: str | None) -> list[str]:
    """Return a line for each claim with two finished seeds of all its runs in a folder: the seeds that it
    needs, and the comparison that needs the most. Further lines say what is left out.

    Raises `StorageError`: there is no such claim. `InvalidConfig`: the price list `prices` does not exist.
    """
    if prices is not None:
        price_list(prices)
    read = [read_or_describe(path, prices) for path in runs_below(folder)]
    conditions, _ = group_runs([run for run in read if isinstance(run, RunResult)])
    lines: list[tuple[str, ...]] = [HEAD]
    left = 0
    for model, claim in product(played_models(conditions), list_claims()):
        if any(row.model not in ("", str(model)) for row in claim):
            continue  # about other models
        # A comparison of USD by several cache rules counts once.
        power = 1 - (1 - POWER) / sum(not row.measure.endswith(RULES) for row in claim)
        needs = [estimate_need(row, find_finished(row, model, conditions), power) for row in claim]
        found = [need for need in needs if need]
        if len(found) < len(claim):
            left += 1
            continue
        need = max(found, key=lambda need: (not need.is_decidable, need.high, need.low))
        shown = (f"{value:.3g}" for value in (need.effect, need.task_sd, need.seed_sd))
        lines.append((f"{claim[0].claim}, {model}", *shown, need.show_seeds()))
    left_out = [problem for problem in read if isinstance(problem, str)]
    reason = "of which a side lacks two finished seeds or values, or has prices of zero (--prices NAME)"
    left_out += [f"claims left out: {left} {reason}"] * bool(left)
    if len(lines) == 1:
        raise StorageError("; ".join([f"no claim can be planned by {len(read)} runs in {folder}", *left_out]))
    return [*align_columns(lines), "", *left_out, caption("power", power=POWER, most=MOST, pilot=PILOT)]


def estimate_need(row: Claim, runs: Runs, power: float) -> Need | None:
    """Return what a comparison needs for a power; `None` without two seeds, prices, or an effect."""
    samples = collect_samples(row, runs)
    if (count := len(samples.runs)) < 2 or (row.is_usd and not samples.scale):
        return None
    with numpy.errstate(divide="ignore", invalid="ignore"):  # a ratio to 0
        values = [*run_values(samples, row.statistic).values()]
        shared = split_task_variance(samples, row.statistic) if samples.share_tasks else None
    effect, variance = float(numpy.mean(values)), float(numpy.var(values, ddof=1))
    if not isfinite(effect + variance):
        return None
    mean_of_tasks = max(0.0, shared.of_tasks - shared.of_rest) if shared else 0.0
    fixed = mean_of_tasks, float(samples.tasks) if shared else inf
    ends, random = numpy.array([end for end in row.ends if isfinite(end)]), numpy.random.default_rng(SEED)
    variances = numpy.append(variance * (count - 1) / random.chisquare(count - 1, DRAWS), variance)
    errors = numpy.append(random.normal(0, 1, DRAWS), 0.0) * numpy.sqrt(variances / count + mean_of_tasks)
    margins = (ends[:, None] - effect - errors) * numpy.where(ends == row.ends[0], -1, 1)[:, None]
    *drawn, seeds = seeds_needed(margins, numpy.sqrt(variances), power, *fixed).tolist()
    low, high = (int(end) for end in numpy.quantile(drawn, SPAN, method="nearest"))
    # The deviation over seeds, which many seeds remove, is next to nothing: at 0 `_power` sees equal values.
    of_seeds, most = numpy.array([1e-9]), numpy.array([MOST])
    is_decidable = bool(_power(margins[:, -1:], of_seeds, most, *fixed)[0] >= power)
    task_sd = sqrt(mean_of_tasks * samples.tasks)
    return Need(high, low, seeds if count >= PILOT else None, is_decidable, effect, task_sd, sqrt(variance))


def seeds_needed(
    margins: numpy.ndarray,
    deviations: numpy.ndarray,
    power: float,
    mean_of_tasks: float = 0.0,
    tasks: float = inf,
) -> numpy.ndarray:
    """Return the smallest numbers of seeds at which t-tests reject everything beyond the ends of a range with
    this power; more than `MOST` if none is enough.

    Args:
        margins: distance of the true value from each end, of shape (ends, n); negative if it is outside.
        deviations: standard deviations of a seed's value, of length n.
        mean_of_tasks: variance of the mean by tasks that all seeds share.
        tasks: number of shared tasks; infinite if each seed has its own.
    """
    low, high = numpy.full(len(deviations), 2), numpy.full(len(deviations), MOST + 1)
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_enough = _power(margins, deviations, middle, mean_of_tasks, tasks) >= power
        low = numpy.where(is_open & ~is_enough, middle + 1, low)
        high = numpy.where(is_open & is_enough, middle, high)
    return low


def _power(
    margins: numpy.ndarray,
    deviations: numpy.ndarray,
    seeds: numpy.ndarray,
    mean_of_tasks: float,
    tasks: float,
) -> numpy.ndarray:
    """Return the probability that tests with so many seeds reject everything beyond the ends of a range."""
    confidence = CONFIDENCE if len(margins) == 1 else EQUIVALENCE
    freedom = numpy.minimum(seeds, tasks) - 1
    errors = numpy.sqrt(deviations**2 / seeds + mean_of_tasks)
    # Equal values have no interval. Beyond 50 errors, the power is 1.
    shifts = numpy.where(errors > 0, numpy.clip(margins / numpy.maximum(errors, 1e-300), -50, 50), -50)
    critical = stdtrit(freedom, (1 + confidence) / 2)
    rejected: numpy.ndarray = 1 - sum(nctdtr(freedom, shift, critical) for shift in shifts)
    return numpy.where((margins > 0).all(axis=0), rejected, 0.0)
