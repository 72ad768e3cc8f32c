"""Sets of hidden skills to evaluate, and Shapley values of games with a known solution."""

from __future__ import annotations

import math
import random

import pytest

from speedrunner.results.coalitions import (
    MOST_SKILLS,
    ORDERS,
    Coalition,
    hidden_sets,
    sample_orders,
    shapley_values,
    usable_orders,
)

THREE = ["a", "b", "c"]
TWELVE = [f"skill_{number:02}" for number in range(MOST_SKILLS)]


def seen(skills: list[str]) -> set[Coalition]:
    return {frozenset(skills) - set(hidden) for hidden in hidden_sets("shapley", skills)}


class TestHiddenSets:
    def test_leave_one_out_also_has_the_whole_library_and_the_empty_one(self) -> None:
        assert hidden_sets("each", THREE) == [[], ["c"], ["b"], ["a"], ["a", "b", "c"]]
        assert hidden_sets("each", ["a"]) == [[], ["a"]]

    @pytest.mark.parametrize("count", range(1, 6))
    def test_shapley_values_of_few_skills_use_all_sets(self, count: int) -> None:
        sets = hidden_sets("shapley", TWELVE[:count])
        assert len(sets) == len({*map(tuple, sets)}) == 2**count
        assert (sets[0], sets[-1]) == ([], TWELVE[:count])

    @pytest.mark.parametrize("count", range(6, MOST_SKILLS + 1))
    def test_of_more_skills_use_the_sets_of_sampled_orders(self, count: int) -> None:
        sets = hidden_sets("shapley", TWELVE[:count])
        assert len(sets) <= ORDERS * (count - 1) + 2 < 2**count
        assert (sets[0], sets[-1]) == ([], TWELVE[:count])
        assert len(usable_orders(TWELVE[:count], seen(TWELVE[:count]))) == ORDERS // 2

    def test_too_many_skills_and_no_skill_are_refused(self) -> None:
        with pytest.raises(
            ValueError, match=r"at most 12 skills, and the policy has 13: experiment=attribut"
        ):
            hidden_sets("shapley", [*TWELVE, "one_more"])
        with pytest.raises(ValueError, match="no public skill"):
            hidden_sets("each", [])

    def test_orders_do_not_depend_on_the_order_of_the_skills(self) -> None:
        assert sample_orders(TWELVE) == sample_orders(TWELVE[::-1])


class TestShapleyValues:
    @pytest.mark.parametrize("count", [3, 8, 12])
    def test_of_an_additive_game_are_its_terms_without_sampling_error(self, count: int) -> None:
        skills = TWELVE[:count]
        terms = {skill: float(number) for number, skill in enumerate(skills)}
        found = shapley_values(skills, seen(skills), lambda one: 7 + sum(terms[each] for each in one))
        assert {skill: share.value for skill, share in found.items()} == pytest.approx(terms)
        assert {round(share.error, 9) for share in found.values()} == {0}

    @pytest.mark.parametrize("count", [4, 6, 12])
    def test_sum_to_the_whole_library_minus_the_empty_one(self, count: int) -> None:
        skills, drawn = TWELVE[:count], random.Random(0)
        values = {one: drawn.random() for one in sorted(seen(skills), key=sorted)}
        found = shapley_values(skills, set(values), values.__getitem__)
        total = values[frozenset(skills)] - values[frozenset()]
        assert math.fsum(share.value for share in found.values()) == pytest.approx(total)

    def test_split_what_two_skills_do_only_together(self) -> None:
        found = shapley_values(THREE, seen(THREE), lambda one: 6.0 * ({"a", "b"} <= one))
        assert {skill: share.value for skill, share in found.items()} == pytest.approx(
            {"a": 3, "b": 3, "c": 0}
        )
        assert {share.orders for share in found.values()} == {None}

    def test_sampled_ones_are_within_their_error_of_the_exact_ones(self) -> None:
        """The value of skills that are used up: each further one of the best three adds half as much."""
        skills = TWELVE[:8]

        def value(one: Coalition) -> float:
            return 2 - 2 * 0.5 ** len(one & set(skills[:3]))

        found = shapley_values(skills, seen(skills), value)
        exact = value(frozenset(skills)) / 3  # the three are alike
        for skill in skills[:3]:
            assert 0 < found[skill].error < 0.2
            assert abs(found[skill].value - exact) < 4 * found[skill].error
            assert found[skill].orders == ORDERS
        assert {found[skill].value for skill in skills[3:]} == {0}

    def test_an_order_with_a_missing_set_is_left_out_together_with_its_reverse(self) -> None:
        skills = TWELVE[:8]
        order = sample_orders(skills)[0]
        played = seen(skills) - {frozenset(order[:4])}
        found = shapley_values(skills, played, lambda one: float(len(one)))
        assert {share.orders for share in found.values()} == {ORDERS - 2}
        assert shapley_values(skills, {frozenset()}, lambda one: 0.0) == {}
        pair = {frozenset(order[:size]) for order in sample_orders(skills)[:2] for size in range(9)}
        alone = shapley_values(skills, pair, lambda one: float(len(one)))
        assert {(share.value, share.orders, math.isnan(share.error)) for share in alone.values()} == {
            (1, 2, True)
        }
