"""Two-sided paired t-tests, and Holm's correction for many of them (Holm, S. (1979), A simple sequentially
rejective multiple test procedure)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from speedrunner.statistics.intervals import CONFIDENCE


class PairedTest(msgspec.Struct, frozen=True):
    """What pairs tell of a difference.

    Attributes:
        pairs: how many there are.
        difference: the mean of the pairs' differences.
        low, high: the t interval that holds it with `CONFIDENCE`; `None` of fewer than two pairs.
        t, p: Student's statistic, and how likely one as large is without a difference; `None` also where all
            pairs differ by the same.
    """

    pairs: int
    difference: float
    low: float | None = None
    high: float | None = None
    t: float | None = None
    p: float | None = None


def paired_t_test(differences: Sequence[float]) -> PairedTest | None:
    """Test whether the mean of differences is zero; `None` where there is none."""
    import numpy
    from scipy import stats  # type: ignore[import-untyped]

    if not differences:
        return None
    given = numpy.asarray(differences, dtype=float)
    count, mean = len(given), float(given.mean())
    if count < 2:
        return PairedTest(count, mean)
    if numpy.ptp(given) <= 1e-12 * numpy.abs(given).max():  # equal, but for what adding up floats leaves
        return PairedTest(count, mean, mean, mean)
    found = stats.ttest_1samp(given, 0.0)
    interval = found.confidence_interval(CONFIDENCE)
    return PairedTest(
        count, mean, float(interval.low), float(interval.high), float(found.statistic), float(found.pvalue)
    )


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Correct p-values of one family, by Holm; one that is not known stays so, and counts for none."""
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    reached = 0.0
    for rank, (value, place) in enumerate(known):
        reached = max(reached, min(1.0, (len(known) - rank) * value))
        corrected[place] = reached
    return corrected
