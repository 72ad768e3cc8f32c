"""Tests and intervals, against numbers worked out by hand and by simulation."""

from __future__ import annotations

import math

import numpy
import pytest
from scipy.stats import binomtest

from speedrunner.results.inference import (
    CONFIDENCE,
    Estimate,
    bootstrap_seeds,
    estimate_score,
    keep_crossing,
    paper_ttest,
    ttest_seeds,
)


def test_statistic_interval_and_p_are_those_worked_out_by_hand() -> None:
    found = paper_ttest([1.0, 2.0, 3.0])
    # Mean 2, deviation 1, two degrees of freedom, for which p = 1 - t / sqrt(2 + t**2).
    assert found is not None
    assert (found.count, found.mean) == (3, 2.0)
    t = 2 / (1 / math.sqrt(3))
    assert found.t == pytest.approx(t)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    # 4.302653 is the quantile of a table of Student's distribution.
    assert (found.low, found.high) == (
        pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-6),
        pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-6),
    )


@pytest.mark.parametrize("value", [0.0, 0.25, 0.1 + 0.2])
def test_where_all_pairs_differ_by_the_same_there_is_nothing_to_test(value: float) -> None:
    found = paper_ttest([value, value, value, math.nextafter(value, 1.0)] if value else [0.0] * 4)
    assert found is not None
    assert (found.t, found.p) == (None, None)
    assert found.low == found.high == found.mean == pytest.approx(value)


class TestSeeds:
    def test_the_test_is_one_of_the_seeds_means(self) -> None:
        values = {(0, 0): [0.0, 2.0], (0, 1): [2.0, 2.0], (0, 2): [3.0]}
        assert ttest_seeds(values) == paper_ttest([1.0, 2.0, 3.0])
        assert ttest_seeds({(0, 0): [1.0, 2.0]}) == Estimate(1.5, None, None, 1)
        assert ttest_seeds({}) is None

    @pytest.mark.parametrize(
        ("wording_sd", "seed_sd", "seeds"), [(1.0, 0.0, 3), (1.0, 1.0, 3), (0.0, 1.0, 3), (1.0, 1.0, 10)]
    )
    def test_wordings_are_a_second_random_factor(self, wording_sd: float, seed_sd: float, seeds: int) -> None:
        random, cases = numpy.random.default_rng(0), 400
        effects = (
            random.normal(0, wording_sd, (cases, 4, 1))
            + random.normal(0, seed_sd, (cases, 1, seeds))
            + random.normal(0, 0.5, (cases, 4, seeds))
        )  # there is no difference: all that is found is false
        crossed = [ttest_seeds({key: [x] for key, x in numpy.ndenumerate(own)}) for own in effects]
        independent = [paper_ttest(own.ravel().tolist()) for own in effects]
        false, naive = (
            sum(each is not None and (each.p or 1) < 0.05 for each in own) for own in (crossed, independent)
        )
        assert false <= 0.05 * cases < 0.2 * cases < naive

    def test_wordings_count_only_where_at_least_three_have_the_same_seeds(self) -> None:
        usual = {(0, seed): [float(seed)] for seed in range(3)}
        whole = {(wording, seed): [float(wording + seed)] for wording in range(3) for seed in range(3)}
        assert keep_crossing(whole) == whole
        for others in ({(1, 0): [9.0]}, {(1, seed): [9.0] for seed in range(3)}):
            assert keep_crossing(usual | others) == usual
        assert keep_crossing({key: each for key, each in whole.items() if key != (2, 2)}) == usual
        assert ttest_seeds({(wording, 0): [float(wording)] for wording in range(3)}) == Estimate(
            1.0, None, None, 1
        )

    def test_crossed_factors_have_the_variance_of_a_two_way_analysis(self) -> None:
        cells = numpy.array([[1.0, 2.0, 4.0], [2.0, 4.0, 9.0], [0.0, 1.0, 3.0]])
        found = ttest_seeds({key: [x] for key, x in numpy.ndenumerate(cells)})
        assert found is not None
        # Mean squares by hand, of wordings, seeds and the rest.
        of_wordings, of_seeds, of_rest = 97 / 9, 133 / 9, 13 / 9
        assert found.t is not None
        assert found.mean / found.t == pytest.approx(((of_wordings + of_seeds - of_rest) / 9) ** 0.5)

    def test_the_bootstrap_of_one_seed_resamples_its_episodes(self) -> None:
        values = [0.0, 1.0, 1.0, 0.0, 1.0]
        assert bootstrap_seeds({0: values, 1: []}) == bootstrap_seeds({0: values})
        assert bootstrap_seeds({0: [0.5]}) == Estimate(0.5, None, None, 1)
        assert bootstrap_seeds({0: []}) is None

    def test_a_share_of_one_seed_and_equal_scores_have_the_interval_of_wilson(self) -> None:
        for won, of in ((0, 6), (6, 6), (1, 6), (5, 10)):
            found = estimate_score({0: [1.0] * won + [0.0] * (of - won)})
            assert found is not None
            around = binomtest(won, of).proportion_ci(CONFIDENCE, method="wilson")
            assert found.ends == pytest.approx((around.low, around.high))
        assert estimate_score({0: [0.0] * 3, 1: [0.0] * 3}) == estimate_score({0: [0.0] * 6})
        for values in ({0: [0.0, 1.0], 1: [1.0, 1.0]}, {0: [0.0, 0.5]}, {0: [1.0]}):
            assert estimate_score(values) == bootstrap_seeds(values)

    def test_a_seed_that_is_drawn_twice_has_new_episodes_each_time(self) -> None:
        values = [0.0, 1.0] * 50
        one, two = bootstrap_seeds({0: values}), bootstrap_seeds({0: values, 1: values})
        assert one is not None
        assert two is not None
        # The same episodes twice would give a ratio of the square root of 3/4, not of 1/2.
        width, half = ((found.high or 0) - (found.low or 0) for found in (one, two))
        assert half / width == pytest.approx(math.sqrt(1 / 2), rel=0.06)
