"""The seeds that the paper's claims need, from the effects and variances of a pilot.

A seed's value varies with the seed itself, with what it learns (a library or notes), and with its test
episodes. The variance between seeds before training is the seed's; the rest of that at the last checkpoint is
that of what was learned. Without learning, all of it is the seed's. If no checkpoint comes before it, as in
evaluations of a stored policy, the two cannot be separated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite, isnan, nan, sqrt
from pathlib import Path

import numpy
from scipy.stats import nct, t  # type: ignore[import-untyped]

from speedrunner.plain.console import align_columns, short_number
from speedrunner.results.claims import (
    EQUIVALENCE,
    Claim,
    Runs,
    collect_samples,
    find_finished,
    is_free,
    list_claims,
)
from speedrunner.results.conditions import group_runs, played_models
from speedrunner.results.inference import CONFIDENCE, Samples, run_values
from speedrunner.results.pricing import price_list
from speedrunner.results.run_result import RunResult, read_or_describe
from speedrunner.results.writing import caption
from speedrunner.store.discovery import runs_below
from speedrunner.store.files import StorageError

POWER = 0.8
MOST = 200
"""Seeds above which a claim is out of reach."""

HEAD = ("claim", "effect", "seed sd", "learned sd", "episode sd", "seeds", "GPU-hours")


Need = tuple[int, float, float, float, float]
"""Seeds that a comparison needs (more than `MOST`: out of reach), its effect, and the standard deviations of
seed, learning (NaN: there is none, or it is part of the seed's) and episode."""


def power_lines(folder: Path, prices: str | None) -> list[str]:
    """Return a line for each claim with two finished seeds of all its runs in a folder: the seeds that it
    needs, and the comparison that needs the most. Further lines say what is left out.

    Raises `StorageError`: there is no such claim. `InvalidConfig`: the price list `prices` does not exist.
    """
    if prices is not None:
        price_list(prices)
    read = [read_or_describe(path, prices) for path in runs_below(folder)]
    conditions, _ = group_runs([each for each in read if isinstance(each, RunResult)])
    lines: list[tuple[str, ...]] = [HEAD]
    left = Counter[str]()
    for model in played_models(conditions):
        for claim in list_claims():
            if any(row.model not in ("", str(model)) for row in claim):
                continue  # about other models
            runs = [find_finished(row, model, conditions) for row in claim]
            power = 1 - (1 - POWER) / len({row.counted_as for row in claim})
            needs = [estimate_need(row, own, power) for row, own in zip(claim, runs, strict=True)]
            samples = [collect_samples(row, own) for row, own in zip(claim, runs, strict=True)]
            if min(len(own.runs) for own in samples) > 1 and any(map(is_free, claim, samples)):
                left[f"on USD, as all prices are zero: speedrunner sweep --power {folder} --prices NAME"] += 1
            elif not all(needs):
                left["of which a side lacks two finished seeds or values"] += 1
            else:
                seeds, *numbers = max(need for need in needs if need)
                hours = _hours_of_a_seed(runs) if seeds <= MOST else None
                last = (str(seeds) if seeds <= MOST else "-", short_number(hours and hours * seeds))
                shown = ("-" if isnan(each) else f"{each:.3g}" for each in numbers)
                lines.append((f"{claim[0].claim}, {model}", *shown, *last))
    left_out = [each for each in read if isinstance(each, str)]
    left_out += (f"claims left out: {count} {reason}" for reason, count in left.items())
    if len(lines) == 1:
        raise StorageError("; ".join([f"no claim can be planned by {len(read)} runs in {folder}", *left_out]))
    return [*align_columns(lines), "", *left_out, caption("power", power=POWER, most=MOST)]


def _hours_of_a_seed(runs: Sequence[Runs]) -> float | None:
    """Return the GPU-hours of one run of each condition; `None` if unknown."""
    by_condition = {
        side._replace(point=0): played.values() for finished in runs for side, played in finished.items()
    }
    hours = [[run.gpu_hours for run in own if run.gpu_hours is not None] for own in by_condition.values()]
    return sum(sum(own) / len(own) for own in hours) if all(hours) else None


def estimate_need(row: Claim, runs: Runs, power: float) -> Need | None:
    """Return what a comparison needs for a power; `None` without two seeds, or without an effect."""
    samples = collect_samples(row, runs)
    if len(samples.runs) < 2:
        return None
    effect, total, between, episode = split_variance(row, samples)
    if not isfinite(effect + total + episode):
        return None
    start = collect_samples(row, runs, point=0)
    # Measures that need a library have no value at the first checkpoint: all their deviation is learned.
    before = split_variance(row, start) if len(start.runs) > 1 else (nan, nan, 0.0, nan)
    played = [run for own in runs.values() for run in own.values()]
    learns = any(len(run.skills) or run.checkpoints["notes"].any() for run in played)
    is_split = learns and before != (effect, total, between, episode)  # equal: the same checkpoint
    seed = min(between, before[2]) if is_split else between
    margins = [abs(effect - end) for end in row.ends if isfinite(end)] if row.contains(effect) else []
    deviations = (sqrt(seed), sqrt(between - seed) if is_split else nan, sqrt(episode))
    return seeds_needed(margins, sqrt(total), power), effect, *deviations


def split_variance(row: Claim, samples: Samples) -> tuple[float, float, float, float]:
    """Return the mean and the variance of the seeds' values, the part of this variance that is between
    seeds, and the variance of an episode's value within a seed (of a ratio, to first order)."""
    with numpy.errstate(divide="ignore", invalid="ignore"):  # a ratio to 0
        values = [*run_values(samples, row.statistic).values()]
    within = [0.0]
    for own in (own for arrays in samples.runs.values() for own in arrays if len(own) > 1):
        first, last = own.mean(axis=0)[[0, -1]]
        ratio = first / last if last else float("nan")
        slope = {"value": 0.0, "difference": 1.0, "ratio": ratio}[row.relation]
        scale = last if row.relation == "ratio" else 1.0
        within.append(float(numpy.var((own[:, 0] - slope * own[:, -1]) / scale, ddof=1)))
    episode = sum(within) / max(1, len(within) - 1)
    episodes = sum(map(sum, samples.sizes)) / len(samples.runs)
    total = float(numpy.var(values, ddof=1))
    return float(numpy.mean(values)), total, max(0.0, total - episode / episodes), episode


def seeds_needed(margins: Sequence[float], deviation: float, power: float) -> int:
    """Return the smallest number of seeds at which t-tests over seeds reject everything beyond the ends of a
    range with this power; more than `MOST` if none is enough.

    Args:
        margins: distance of the true value from each end; empty if it is outside.
        deviation: standard deviation of a seed's value.
    """
    confidence = CONFIDENCE if len(margins) == 1 else EQUIVALENCE
    fewest = 2 if deviation > 1e-12 else 3  # two equal values have no interval
    for count in range(fewest, MOST + 1) if margins else ():
        critical = t.ppf((1 + confidence) / 2, count - 1)
        shifts = [min(margin / max(deviation, 1e-12) * sqrt(count), 1e3) for margin in margins]
        if 1 - sum(nct.cdf(critical, count - 1, shift) for shift in shifts) >= power:
            return count
    return MOST + 1
