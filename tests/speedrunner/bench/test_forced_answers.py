"""The comparison of log-probabilities: which episodes, and which shifts count."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from speedrunner.bench.forced_answers import ForcedToken, choose_episodes, draw_places, shift_figures
from speedrunner.store.run_data import load
from tests.scripted_runs import ScriptedRun


def test_two_tokens_of_each_turn_are_chosen_until_there_are_enough(learnt: ScriptedRun) -> None:
    played = load(learnt.dir).trajectories()
    assert sum(len(each.turns) for each in played) > 5
    assert [len(each.turns) for each in choose_episodes(played, 2)] == [1]
    chosen = choose_episodes(played, 10)
    assert sum(len(each.turns) for each in chosen) == 5
    assert chosen == choose_episodes(played, 10)
    assert [each.episode for each in chosen] != [each.episode for each in played[: len(chosen)]]
    assert chosen == sorted(chosen, key=lambda each: each.started)


def test_most_of_the_tokens_are_neither_the_first_nor_the_last_of_an_answer() -> None:
    drawn = [draw_places(f"train/0000 {number}", 20) for number in range(100)]
    assert {len({*places}) for places in drawn} == {2}
    assert sum(place in (0, 19) for places in drawn for place in places) < 40
    assert draw_places("train/0000 0", 1) == [0]


def tokens(cached: Sequence[float], computed: Sequence[float], control: Sequence[float]) -> list[ForcedToken]:
    return [ForcedToken(32, *each) for each in zip(cached, computed, control, strict=True)]


@pytest.mark.parametrize(("dtype", "noise"), [("float32", 1e-5), ("bfloat16", 0.01)])
def test_a_shift_within_the_engine_s_noise_is_no_difference(dtype: str, noise: float) -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        true = -rng.exponential(3, 200)
        found = shift_figures(tokens(*(true + rng.normal(0, noise, (3, 200)))), dtype)
        assert found["same"] is True


@pytest.mark.parametrize(("dtype", "noise"), [("float32", 1e-5), ("bfloat16", 0.01)])
@pytest.mark.parametrize("wrong", [0.1, 1.0])
def test_a_wrong_state_behind_a_tenth_of_the_tokens_is_caught_100_times_of_100(
    dtype: str, noise: float, wrong: float
) -> None:
    """Known bugs changed up to a fifth of all answers."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        true = -rng.exponential(3, 200)
        cached, computed, control = true + rng.normal(0, noise, (3, 200))
        hit = rng.random(200) < wrong
        hit[: math.ceil(200 * wrong)] |= not hit.any()
        cached = np.where(hit, -rng.exponential(3, 200), cached)
        assert shift_figures(tokens(cached, computed, control), dtype)["same"] is False


def test_tokens_without_a_cached_prefix_say_nothing() -> None:
    found = shift_figures([ForcedToken(0, -1.0, -9.0, -9.0)], "float32")
    assert found["same"] is None
