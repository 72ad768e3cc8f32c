"""Tests and intervals, against numbers worked out by hand and by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy
import pytest
from pandas import Series
from scipy.stats import binomtest

from speedrunner.results.inference import (
    CONFIDENCE,
    Estimate,
    Samples,
    Values,
    average_columns,
    estimate_mean,
    estimate_score,
    match_tasks,
    paper_ttest,
    split_task_variance,
)


def own_tasks(*values: Sequence[float]) -> Values:
    """The values of each seed, which has tasks of its own."""
    return {
        seed: Series(own, [(seed, number) for number in range(len(own))], dtype=float)
        for seed, own in enumerate(values)
    }


def same_tasks(*values: Sequence[float]) -> Values:
    """The values of each seed in the same tasks."""
    return {seed: Series(own, dtype=float) for seed, own in enumerate(values)}


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
        found, by_hand = estimate_mean(own_tasks([0.9, 1.1], [2.0, 2.0], [3.0])), paper_ttest([1.0, 2.0, 3.0])
        assert found is not None
        assert msgspec.structs.replace(found, count=3) == by_hand
        assert found.count == 5

    def test_equal_seeds_vary_as_their_episodes(self) -> None:
        found = estimate_mean(own_tasks([0.0, 2.0], [0.0, 2.0]))
        assert found is not None
        assert found.t is not None
        assert found.mean / found.t == pytest.approx((1 / 2) ** 0.5)  # 2 / 4, by hand

    def test_one_seed_has_an_interval_over_its_tasks_and_no_test(self) -> None:
        values = [0.0, 1.0, 1.0, 0.0, 2.0]
        found, by_hand = estimate_mean(own_tasks(values, [])), paper_ttest(values)
        assert found is not None
        assert by_hand is not None
        assert found.ends == pytest.approx(by_hand.ends)
        assert (found.t, found.p, found.count) == (None, None, 5)
        assert estimate_mean(own_tasks([0.5])) == Estimate(0.5, None, None, 1)
        assert estimate_mean(own_tasks([])) is None

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
            assert estimate_score(values) == estimate_mean(values)


class TestSharedTasks:
    """Tasks that all seeds play."""

    def test_the_variance_is_that_of_a_two_way_analysis(self) -> None:
        found = estimate_mean(same_tasks([1.0, 2.0, 4.0], [2.0, 4.0, 9.0], [0.0, 1.0, 3.0]))
        assert found is not None
        assert found.t is not None
        # Mean squares by hand, of seeds, tasks and the rest.
        of_seeds, of_tasks, of_rest = 97 / 9, 133 / 9, 13 / 9
        assert found.mean / found.t == pytest.approx(((of_seeds + of_tasks - of_rest) / 9) ** 0.5)

    def test_more_seeds_do_not_prove_a_difference_of_a_few_tasks(self) -> None:
        of_tasks = [1.0] * 8 + [-1.0] * 2  # by chance more tasks are better: two of ten more would be even
        seeds = [[value + 0.01 * seed for value in of_tasks] for seed in range(20)]
        nested, shared = estimate_mean(own_tasks(*seeds)), estimate_mean(same_tasks(*seeds))
        assert nested is not None
        assert shared is not None
        assert (nested.p or 1) < 0.001 < 0.01 < (shared.p or 1)

    def test_a_ratio_varies_as_its_linear_part(self) -> None:
        random = numpy.random.default_rng(0)
        arrays = [100 + random.normal(0, 1, (30, 2)) + random.normal(0, 1, (30, 1)) for _ in range(4)]
        ratio = Samples({seed: [own] for seed, own in enumerate(arrays)}, share_tasks=True)
        linear = {
            seed: [(own[:, :1] - own[:, 1:] * own[:, 0].mean() / own[:, 1].mean()) / own[:, 1].mean()]
            for seed, own in enumerate(arrays)
        }
        found, expected = (
            split_task_variance(ratio, lambda means: means[0] / means[1]),
            split_task_variance(Samples(linear, share_tasks=True), average_columns),
        )
        assert found == pytest.approx(expected, rel=0.01)

    def test_tasks_are_shared_if_all_runs_have_at_least_half_of_them(self) -> None:
        values = same_tasks([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
        runs = {seed: [own] for seed, own in values.items()}
        assert match_tasks(runs).share_tasks
        assert not match_tasks({0: runs[0]}).share_tasks
        part = match_tasks({0: runs[0], 1: [values[1].iloc[[2, 1]]]})
        assert part.runs[1][0].ravel().tolist() == [5.0, 6.0]
        assert (part.share_tasks, part.sizes, part.tasks) == (True, ((2,), (2,)), 2)
        chance = match_tasks({0: runs[0], 1: [values[1].set_axis([7, 1, 8])]})
        assert (chance.share_tasks, chance.sizes, chance.tasks) == (False, ((3,), (3,)), 6)

    def test_equal_values_have_no_interval(self) -> None:
        for values in (own_tasks([0.5] * 9, [0.5] * 9), same_tasks([0.1 + 0.2] * 9, [0.3] * 9)):
            found = estimate_mean(values)
            assert found is not None
            assert (found.ends, found.p) == (None, None)
