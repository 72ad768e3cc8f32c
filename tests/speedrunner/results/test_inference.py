"""Tests and intervals, against numbers worked out by hand and by simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy
import pytest
from pandas import Series
from scipy.stats import binomtest

from speedrunner.results.inference import (
    CONFIDENCE,
    Estimate,
    RunKey,
    Samples,
    Values,
    average_columns,
    bootstrap_seeds,
    bootstrap_statistic,
    estimate_score,
    keep_crossing,
    match_tasks,
    paper_ttest,
    split_task_variance,
    ttest_statistic,
)


def ttest(values: Mapping[RunKey, Sequence[float]]) -> Estimate | None:
    """Test the means of runs with tasks of their own."""
    runs = {key: [numpy.array(own, dtype=float)[:, None]] for key, own in values.items()}
    return ttest_statistic(Samples(runs, share_tasks=False), average_columns)


def own_tasks(*values: Sequence[float]) -> Values:
    """The values of each seed, which has tasks of its own."""
    return {
        (0, seed): Series(own, [(seed, number) for number in range(len(own))], dtype=float)
        for seed, own in enumerate(values)
    }


def same_tasks(*values: Sequence[float]) -> Values:
    """The values of each seed in the same tasks."""
    return {(0, seed): Series(own, dtype=float) for seed, own in enumerate(values)}


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
    assert (found.low, found.high, found.t, found.p) == (None, None, None, None)
    assert found.mean == pytest.approx(value)


class TestSeeds:
    def test_the_test_is_one_of_the_seeds_means(self) -> None:
        values = {(0, 0): [0.0, 2.0], (0, 1): [2.0, 2.0], (0, 2): [3.0]}
        by_hand = paper_ttest([1.0, 2.0, 3.0])
        assert msgspec.structs.astuple(ttest(values)) == pytest.approx(msgspec.structs.astuple(by_hand))
        assert ttest({(0, 0): [1.0, 2.0]}) == Estimate(1.5, None, None, 1)
        assert ttest({}) is None

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
        crossed = [ttest({key: [x] for key, x in numpy.ndenumerate(own)}) for own in effects]
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
        assert ttest({(wording, 0): [float(wording)] for wording in range(3)}) == Estimate(1.0, None, None, 1)

    def test_crossed_factors_have_the_variance_of_a_two_way_analysis(self) -> None:
        cells = numpy.array([[1.0, 2.0, 4.0], [2.0, 4.0, 9.0], [0.0, 1.0, 3.0]])
        found = ttest({key: [x] for key, x in numpy.ndenumerate(cells)})
        assert found is not None
        # Mean squares by hand, of wordings, seeds and the rest.
        of_wordings, of_seeds, of_rest = 97 / 9, 133 / 9, 13 / 9
        assert found.t is not None
        assert found.mean / found.t == pytest.approx(((of_wordings + of_seeds - of_rest) / 9) ** 0.5)

    def test_the_bootstrap_of_one_seed_resamples_its_episodes(self) -> None:
        values = [0.0, 1.0, 1.0, 0.0, 1.0]
        assert bootstrap_seeds(own_tasks(values, [])) == bootstrap_seeds(own_tasks(values))
        assert bootstrap_seeds(own_tasks([0.5])) == Estimate(0.5, None, None, 1)
        assert bootstrap_seeds(own_tasks([])) is None

    def test_a_share_of_one_seed_and_equal_scores_have_the_interval_of_wilson(self) -> None:
        for won, of in ((0, 6), (6, 6), (1, 6), (5, 10)):
            found = estimate_score(own_tasks([1.0] * won + [0.0] * (of - won)))
            assert found is not None
            around = binomtest(won, of).proportion_ci(CONFIDENCE, method="wilson")
            assert found.ends == pytest.approx((around.low, around.high))
        assert estimate_score(own_tasks([0.0] * 3, [0.0] * 3)) == estimate_score(own_tasks([0.0] * 6))
        three, shared = (estimate_score(same_tasks(*[[0.0] * 3] * seeds)) for seeds in (1, 5))
        assert (shared and shared.ends) == (three and three.ends)  # a task counts once
        for values in (own_tasks([0.0, 1.0], [1.0, 1.0]), own_tasks([0.0, 0.5]), own_tasks([1.0])):
            assert estimate_score(values) == bootstrap_seeds(values)

    def test_a_seed_that_is_drawn_twice_has_new_episodes_each_time(self) -> None:
        values = [0.0, 1.0] * 50
        one, two = bootstrap_seeds(own_tasks(values)), bootstrap_seeds(own_tasks(values, values))
        assert one is not None
        assert two is not None
        # The same episodes twice would give a ratio of the square root of 3/4, not of 1/2.
        width, half = ((found.high or 0) - (found.low or 0) for found in (one, two))
        assert half / width == pytest.approx(math.sqrt(1 / 2), rel=0.06)


class TestSharedTasks:
    """Tasks that all seeds play."""

    def test_the_variance_is_that_of_a_two_way_analysis(self) -> None:
        cells = numpy.array([[1.0, 2.0, 4.0], [2.0, 4.0, 9.0], [0.0, 1.0, 3.0]])  # seeds, tasks
        found = ttest_statistic(
            match_tasks({key: [own] for key, own in same_tasks(*cells).items()}), average_columns
        )
        assert found is not None
        assert found.t is not None
        # The mean squares of `test_crossed_factors_have_the_variance_of_a_two_way_analysis`.
        assert found.mean / found.t == pytest.approx(((97 / 9 + 133 / 9 - 13 / 9) / 9) ** 0.5)

    def test_more_seeds_do_not_prove_a_difference_of_a_few_tasks(self) -> None:
        of_tasks = [1.0] * 8 + [-1.0] * 2  # by chance more tasks are better: two of ten more would be even
        seeds = [[value + 0.01 * seed for value in of_tasks] for seed in range(20)]
        nested, shared = (
            ttest_statistic(match_tasks({key: [own] for key, own in values.items()}), average_columns)
            for values in (own_tasks(*seeds), same_tasks(*seeds))
        )
        assert nested is not None
        assert shared is not None
        assert (nested.p or 1) < 0.001 < 0.01 < (shared.p or 1)

    def test_the_bootstrap_draws_the_same_tasks_for_all_seeds(self) -> None:
        values = [0.0, 1.0] * 50
        one, many = bootstrap_seeds(same_tasks(values)), bootstrap_seeds(same_tasks(*[values] * 5))
        assert one is not None
        assert many is not None
        assert one.ends == pytest.approx(many.ends)

    def test_a_ratio_varies_as_its_linear_part(self) -> None:
        random = numpy.random.default_rng(0)
        arrays = [100 + random.normal(0, 1, (30, 2)) + random.normal(0, 1, (30, 1)) for _ in range(4)]
        ratio = Samples({(0, seed): [own] for seed, own in enumerate(arrays)}, share_tasks=True)
        linear = {
            (0, seed): [(own[:, :1] - own[:, 1:] * own[:, 0].mean() / own[:, 1].mean()) / own[:, 1].mean()]
            for seed, own in enumerate(arrays)
        }
        found, expected = (
            split_task_variance(ratio, lambda means: means[0] / means[1]),
            split_task_variance(Samples(linear, share_tasks=True), average_columns),
        )
        assert found == pytest.approx(expected, rel=0.01)

    def test_tasks_are_shared_if_all_runs_have_at_least_half_of_them(self) -> None:
        values = same_tasks([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
        runs = {key: [own] for key, own in values.items()}
        assert match_tasks(runs).share_tasks
        assert not match_tasks({(0, 0): runs[0, 0]}).share_tasks
        part = match_tasks({(0, 0): runs[0, 0], (0, 1): [values[0, 1].iloc[[2, 1]]]})
        assert part.runs[0, 1][0].ravel().tolist() == [5.0, 6.0]
        assert (part.share_tasks, part.sizes, part.tasks) == (True, ((2,), (2,)), 2)
        chance = match_tasks({(0, 0): runs[0, 0], (0, 1): [values[0, 1].set_axis([7, 1, 8])]})
        assert (chance.share_tasks, chance.sizes, chance.tasks) == (False, ((3,), (3,)), 6)

    def test_equal_values_have_no_interval(self) -> None:
        for values in (own_tasks([0.5] * 9, [0.5] * 9), same_tasks([0.1 + 0.2] * 9, [0.3] * 9)):
            samples = match_tasks({key: [own] for key, own in values.items()})
            for infer in (bootstrap_statistic, ttest_statistic):
                found = infer(samples, average_columns)
                assert found is not None
                assert (found.ends, found.p) == (None, None)
