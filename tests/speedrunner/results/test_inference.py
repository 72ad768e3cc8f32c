"""Tests and intervals, against numbers worked out by hand and by simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import pytest
from pandas import Series
from scipy.stats import binomtest, ttest_1samp

from speedrunner.results.inference import (
    CONFIDENCE,
    Estimate,
    Samples,
    Values,
    average_columns,
    estimate_mean,
    estimate_score,
    match_tasks,
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


def by_hand(*values: float) -> tuple[float, tuple[float, float], float]:
    """Return t, the interval and p of independent values."""
    found = ttest_1samp(values, 0.0)
    return found.statistic, tuple(found.confidence_interval(CONFIDENCE)), found.pvalue


class TestSeeds:
    def test_the_test_is_one_of_the_seeds_means(self) -> None:
        found = estimate_mean(own_tasks([0.9, 1.1], [2.0, 2.0], [3.0]))
        assert found is not None
        t, ends, p = by_hand(1.0, 2.0, 3.0)
        assert (found.t, found.ends, found.p) == (pytest.approx(t), pytest.approx(ends), pytest.approx(p))
        assert (found.mean, found.count) == (2.0, 5)

    def test_equal_seeds_vary_as_their_episodes(self) -> None:
        found = estimate_mean(own_tasks([0.0, 2.0], [0.0, 2.0]))
        assert found is not None
        assert found.t is not None
        assert found.mean / found.t == pytest.approx((1 / 2) ** 0.5)  # 2 / 4, by hand

    def test_one_seed_has_an_interval_over_its_tasks_and_no_test(self) -> None:
        values = [0.0, 1.0, 1.0, 0.0, 2.0]
        found = estimate_mean(own_tasks(values, []))
        assert found is not None
        assert found.ends == pytest.approx(by_hand(*values)[1])
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
