"""Paired t-tests and Holm's correction, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from speedrunner.results.inference import PairedTest, holm, paired_t_test


def test_statistic_interval_and_p_are_those_worked_out_by_hand() -> None:
    found = paired_t_test([1.0, 2.0, 3.0])
    # Mean 2, deviation 1, two degrees of freedom, for which p = 1 - t / sqrt(2 + t**2).
    assert found is not None
    assert (found.pairs, found.difference) == (3, 2.0)
    t = 2 / (1 / math.sqrt(3))
    assert found.t == pytest.approx(t)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    # 4.302653 is the quantile of a table of Student's distribution.
    assert (found.low, found.high) == (
        pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-6),
        pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-6),
    )


def test_the_sign_is_that_of_the_difference() -> None:
    up, down = paired_t_test([1.0, 2.0, 4.0]), paired_t_test([-1.0, -2.0, -4.0])
    assert up is not None
    assert down is not None
    assert (up.t or 0) > 0 > (down.t or 0)
    assert (up.p, up.low) == (pytest.approx(down.p), pytest.approx(-(down.high or 0)))


@pytest.mark.parametrize("value", [0.0, 0.25, 0.1 + 0.2])
def test_where_all_pairs_differ_by_the_same_there_is_nothing_to_test(value: float) -> None:
    found = paired_t_test([value, value, value, math.nextafter(value, 1.0)] if value else [0.0] * 4)
    assert found is not None
    assert (found.t, found.p) == (None, None)
    assert found.low == found.high == found.difference == pytest.approx(value)


def test_one_pair_has_no_interval_and_none_no_test() -> None:
    assert paired_t_test([0.5]) == PairedTest(1, 0.5)
    assert paired_t_test([]) is None


def test_holm_multiplies_the_smallest_by_all_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_holm_counts_only_what_is_known() -> None:
    assert holm([None, 0.02, None, 0.03]) == [None, 0.04, None, 0.04]
    assert holm([]) == []
