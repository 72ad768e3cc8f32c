"""Means and their bootstrap intervals, against what is known of them."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from speedrunner.statistics.intervals import Estimate, bootstrap_mean


def test_the_same_values_always_have_the_same_interval() -> None:
    values = [0.0, 0.25, 1.0, 0.5, 0.5]
    assert bootstrap_mean(values) == bootstrap_mean(list(values))


def test_of_many_values_it_is_that_of_the_normal_distribution() -> None:
    drawn = random.Random(7)
    values = [drawn.expovariate(1.0) for _ in range(400)]
    found = bootstrap_mean(values)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    half = 1.96 * stdev(values) / math.sqrt(len(values))
    assert found.mean == pytest.approx(fmean(values))
    assert found.high - found.low == pytest.approx(2 * half, rel=0.05)
    assert (found.high + found.low) / 2 == pytest.approx(found.mean, abs=half / 10)


def test_of_two_values_it_spans_both() -> None:
    # Each mean of two draws is 0 or 1 a quarter of the time, which is more than either tail.
    assert bootstrap_mean([0.0, 1.0]) == Estimate(0.5, 0.0, 1.0, 2)


def test_what_is_always_the_same_has_no_width() -> None:
    assert bootstrap_mean([0.5] * 30) == Estimate(0.5, 0.5, 0.5, 30)


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    assert bootstrap_mean([0.5]) == Estimate(0.5, None, None, 1)
    assert bootstrap_mean([]) is None
