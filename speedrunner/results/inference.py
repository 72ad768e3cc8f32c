"""Confidence intervals and tests for differences between conditions.

A condition has few libraries (seeds) and many test episodes of each. Episodes of one seed share a library, so
they are not independent samples of the method. The default test therefore compares the means of seeds
(Student's t), and the bootstrap interval resamples seeds first, then episodes within each. If runs differ in
the wording of their prompts too, wordings are a second random factor. The paper's own
test treats all pairs of seed and episode as independent. It is included for comparison and rejects too often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

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
    """Test the mean of the seeds' means against zero; degrees of freedom are the number of seeds
    minus one. `None` without values.

    With several wordings, the wordings' means are tested too, and the test with the wider interval is
    returned: runs of one wording are as little independent as runs of one seed, and either may vary more.
    """
    tests = []
    for place in (1, 0):  # the seed, then the wording
        levels: dict[int, list[float]] = {}
        for key, own in values.items():
            if len(own):
                levels.setdefault(key[place], []).append(sum(own) / len(own))
        test = paper_ttest([sum(own) / len(own) for own in levels.values()], confidence)
        if test and (place or test.count > 1):
            tests.append(test)
    return max(tests, key=lambda test: test.ends[1] - test.ends[0] if test.ends else math.inf, default=None)


def count_levels(keys: Collection[RunKey]) -> tuple[int, int]:
    """Return the number of wordings and of seeds."""
    return len({wording for wording, _ in keys}), len({seed for _, seed in keys})


def paper_ttest(differences: Sequence[float], confidence: float = CONFIDENCE) -> Estimate | None:
    """Test the mean of differences against zero as if they were independent; `None` without differences."""
    import numpy
    from scipy.stats import ttest_1samp  # type: ignore[import-untyped]

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
