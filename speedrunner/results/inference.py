"""Confidence intervals and tests for differences between conditions.

A condition has few libraries (seeds) and many test episodes of each. Episodes of one seed share a library, so
they are not independent samples of the method. The default test therefore compares the means of seeds
(Student's t), and the bootstrap interval resamples seeds first, then episodes within each. If runs differ in
the wording of their prompts too, wordings are a second random factor. The paper's own
test treats all pairs of seed and episode as independent. It is included for comparison and rejects too often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from numpy import ndarray

CONFIDENCE = 0.95
RESAMPLES = 10_000

TAIL = (1 - CONFIDENCE) / 2
SEED = 0
"""Fixed, so that the same values always have the same interval."""

RunKey = tuple[int, int]
"""Wording (`run.wording`) and seed of a run."""

T = TypeVar("T")

LEAST_WORDINGS = 3
"""Wordings that are tested together: fewer say next to nothing about how much wordings vary."""

Statistic = Callable[["ndarray"], "ndarray"]
"""Receives the means of all columns of all arrays of a seed, of shape (columns, n), and returns n values."""


class Estimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mean over `count` values with its interval at `CONFIDENCE`.

    Attributes:
        low, high: the interval; `None` for one value.
        t, p: of a two-sided t-test against zero; `None` without a test, for one value, and if all values are
            equal.
    """

    mean: float
    low: float | None
    high: float | None
    count: int
    t: float | None = None
    p: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return the interval; `None` for one value."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def bootstrap_seeds(values: Mapping[Any, Sequence[float]]) -> Estimate | None:
    """Return the mean of the seeds' means with its hierarchical percentile bootstrap interval; `None` without
    values. For a paired comparison, pass the differences of the pairs.

    Seeds are drawn with replacement, then episodes within each drawn seed. With one seed, only episodes are
    drawn: the interval then applies to this library only. With fewer than five seeds the interval is too
    narrow: use that of `ttest_seeds`.

    Args:
        values: values of the test episodes, by seed.
    """
    import numpy

    columns = {seed: [numpy.asarray(own, dtype=float)[:, None]] for seed, own in values.items() if len(own)}
    return bootstrap_statistic(columns, lambda means: means[0])


def estimate_score(values: Mapping[Any, Sequence[float]]) -> Estimate | None:
    """Return the mean of the seeds' mean scores with its interval, Wilson's for shares of successes.

    A bootstrap of equal values has no width, but six failures do not prove a score of 0. Scores of one seed
    that are all 0 or 1 are a share, and so are those of several seeds if all are 0, or all are 1.
    """
    pooled = [value for own in values.values() for value in own]
    kinds, seeds = {*pooled}, sum(map(bool, values.values()))
    if len(pooled) < 2 or not kinds <= {0.0, 1.0} or (seeds > 1 and len(kinds) > 1):
        return bootstrap_seeds(values)
    count, mean, square = len(pooled), sum(pooled) / len(pooled), NormalDist().inv_cdf(1 - TAIL) ** 2
    middle = mean + square / (2 * count)
    half = math.sqrt(square * (mean * (1 - mean) / count + square / (4 * count**2)))
    low, high = ((middle + side * half) / (1 + square / count) for side in (-1, 1))
    return Estimate(mean, max(low, 0.0), min(high, 1.0), count)


def bootstrap_statistic(
    samples: Mapping[Any, Sequence[ndarray]], statistic: Statistic, confidence: float = CONFIDENCE
) -> Estimate | None:
    """Return the mean over seeds of a statistic of means, with the interval of `bootstrap_seeds`.

    The same samples always give the same interval.

    Args:
        samples: by seed, arrays of shape (rows, columns). Rows are drawn together, arrays independently.
    """
    import numpy

    if not samples:
        return None
    mean = float(numpy.mean([*seed_values(samples, statistic).values()]))
    count = sum(len(own) for arrays in samples.values() for own in arrays)
    if count < 2:
        return Estimate(mean, None, None, count)
    rows, chosen, which = _draw(tuple(tuple(map(len, arrays)) for arrays in samples.values()))
    parts = iter(rows)
    drawn = numpy.stack(
        [
            statistic(numpy.concatenate([_draw_means(own, next(parts)) for own in arrays]))
            for arrays in samples.values()
        ]
    )
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = numpy.quantile(drawn[chosen, which].mean(axis=0), ends)
    return Estimate(mean, float(low), float(high), count)


def seed_values(samples: Mapping[Any, Sequence[ndarray]], statistic: Statistic) -> dict[Any, float]:
    """Return the statistic of each seed's means."""
    import numpy

    return {
        seed: float(statistic(numpy.concatenate([own.mean(axis=0) for own in arrays])[:, None])[0])
        for seed, arrays in samples.items()
    }


def _draw_means(values: ndarray, rows: ndarray) -> ndarray:
    """Return the means of the columns in each resample, of shape (columns, resamples)."""
    import numpy

    return numpy.stack([column.take(rows).mean(axis=1) for column in values.T])


@lru_cache(maxsize=4)
def _draw(sizes: tuple[tuple[int, ...], ...]) -> tuple[list[ndarray], ndarray, ndarray]:
    """Return what resampling draws for arrays with these numbers of rows, by seed: most comparisons of a
    report have samples of the same size.

    Returns:
        The drawn rows of each array, of shape (`RESAMPLES`, rows); the drawn seeds and, for each of them,
        which resample of its rows is used, both of shape (seeds, `RESAMPLES`): new rows for each drawn seed,
        also if a seed is drawn twice.
    """
    import numpy

    random = numpy.random.default_rng(SEED)
    rows = [random.integers(size, size=(RESAMPLES, size)) for size in chain(*sizes)]
    if len(sizes) == 1:
        return rows, numpy.zeros((1, RESAMPLES), dtype=int), numpy.arange(RESAMPLES)[None]
    chosen = random.integers(len(sizes), size=(len(sizes), RESAMPLES))
    return rows, chosen, numpy.stack([random.permutation(RESAMPLES) for _ in sizes])


def ttest_seeds(values: Mapping[RunKey, Sequence[float]], confidence: float = CONFIDENCE) -> Estimate | None:
    """Test the mean of the runs' means against zero. `None` without values.

    Args:
        values: of one wording, or of wordings that cross all seeds (`keep_crossing`).

    With one wording, the degrees of freedom are the number of seeds minus one. With several, wordings and
    seeds are crossed random factors: the variance of the mean is (MS of wordings + MS of seeds - MS of the
    rest) / runs, and no less than over the wordings' means alone, or over the seeds'. The degrees of freedom
    are the smaller of both numbers minus one, which rejects too seldom rather than too often.
    """
    import numpy
    from scipy.stats import t as student  # type: ignore[import-untyped]

    means = {key: sum(own) / len(own) for key, own in values.items() if len(own)}
    wordings, seeds = count_levels(means)
    cells = numpy.array([means[key] for key in sorted(means)]).reshape(wordings, seeds)
    if min(wordings, seeds) < 2:
        return paper_ttest(cells.mean(axis=0).tolist() if means else [], confidence)
    mean, by_wording, by_seed = cells.mean(), cells.mean(axis=1), cells.mean(axis=0)
    rest = cells - by_wording[:, None] - by_seed + mean
    squares = seeds * by_wording.var(ddof=1), wordings * by_seed.var(ddof=1)
    error = (rest**2).sum() / ((wordings - 1) * (seeds - 1))
    variance = max(sum(squares) - error, *squares)
    if variance <= 1e-24 * (cells**2).max():  # equal up to rounding
        return Estimate(float(mean), float(mean), float(mean), cells.size)
    freedom = min(wordings, seeds) - 1
    error_of_mean = math.sqrt(variance / cells.size)
    half, t = error_of_mean * student.ppf((1 + confidence) / 2, freedom), mean / error_of_mean
    p = 2 * student.sf(abs(t), freedom)
    return Estimate(float(mean), float(mean - half), float(mean + half), cells.size, float(t), float(p))


def keep_crossing(runs: Mapping[RunKey, T]) -> dict[RunKey, T]:
    """Return all runs if at least `LEAST_WORDINGS` wordings have the same seeds; otherwise those of the first
    wording alone, so that a trial of another one changes no verdict."""
    wordings, seeds = count_levels(runs)
    crosses = wordings >= LEAST_WORDINGS and len(runs) == wordings * seeds
    return {key: run for key, run in runs.items() if crosses or key[0] == min(runs)[0]}


def count_levels(keys: Iterable[RunKey]) -> tuple[int, int]:
    """Return the number of wordings and of seeds."""
    found = [*keys]
    return len({wording for wording, _ in found}), len({seed for _, seed in found})


def paper_ttest(differences: Sequence[float], confidence: float = CONFIDENCE) -> Estimate | None:
    """Test the mean of differences against zero as if they were independent; `None` without differences."""
    import numpy
    from scipy.stats import ttest_1samp

    if not differences:
        return None
    given = numpy.asarray(differences, dtype=float)
    count, mean = len(given), float(given.mean())
    if count < 2:
        return Estimate(mean, None, None, count)
    if numpy.ptp(given) <= 1e-12 * numpy.abs(given).max():  # equal up to rounding
        return Estimate(mean, mean, mean, count)
    found = ttest_1samp(given, 0.0)
    low, high = found.confidence_interval(confidence)
    return Estimate(mean, float(low), float(high), count, float(found.statistic), float(found.pvalue))
