"""The remaining time follows the LLM calls of finished episodes, and finished sleeps."""

from __future__ import annotations

import pytest

from speedrunner.runs.time_left import FEW, time_left


def test_episodes_need_their_mean_number_of_calls_and_sleeps_their_mean_duration() -> None:
    assert time_left(10, [2, 4, 6], 0.5, 3, [10.0, 20.0]) == pytest.approx(10 * 4 * 0.5 + 3 * 15.0)


@pytest.mark.parametrize(
    ("calls", "sleeps", "sleep_seconds"), [([5] * (FEW - 1), 0, [1.0]), ([5] * FEW, 1, [])]
)
def test_nothing_is_estimated_from_few_episodes_or_without_a_sleep(
    calls: list[int], sleeps: int, sleep_seconds: list[float]
) -> None:
    assert time_left(10, calls, 1.0, sleeps, sleep_seconds) is None


def test_nothing_is_left_of_a_finished_run() -> None:
    assert time_left(0, [], 1.0, 0, []) == 0.0
