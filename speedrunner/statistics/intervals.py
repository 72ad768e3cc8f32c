"""Means with their intervals, by the bootstrap: what they would be on other tasks of the same kind.

Efron, B. (1979), Bootstrap methods: another look at the jackknife; the interval is the percentile one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 0
"""Fixed, so that the same numbers always have the same interval."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean over `count` values, and the interval that holds it with `CONFIDENCE`; `None`: of one value."""

    mean: float
    low: float | None
    high: float | None
    count: int


def bootstrap_mean(values: Sequence[float]) -> Estimate | None:
    """The mean of values, one for each task; `None` where there is none.

    Tasks are drawn with replacement, `RESAMPLES` times. For a paired comparison the values are each task's
    own difference: what tasks have in common then widens no interval.
    """
    import numpy

    if not values:
        return None
    given = numpy.asarray(values, dtype=float)
    mean = float(given.mean())
    if len(given) < 2:
        return Estimate(mean, None, None, len(given))
    drawn = numpy.random.default_rng(SEED).integers(len(given), size=(RESAMPLES, len(given)))
    tail = (1 - CONFIDENCE) / 2
    low, high = numpy.quantile(given[drawn].mean(axis=1), [tail, 1 - tail])
    return Estimate(mean, float(low), float(high), len(given))
