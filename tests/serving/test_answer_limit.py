"""The time limit of an answer, with restarts of the engine."""

from __future__ import annotations

import pytest

from serving.answer_limit import limit_answer, without_restart
from tests.clocks import Clock


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "serving.answer_limit")


@pytest.mark.parametrize(("restarted", "lost_s"), [(True, 40.0), (False, 0.0)])
async def test_the_try_that_a_restart_cost_does_not_count(
    clock: Clock, restarted: bool, lost_s: float
) -> None:
    async def restart() -> bool:
        await clock.sleep(10.0)
        return restarted

    began = clock.monotonic()
    async with limit_answer(began + 60.0) as limit:
        await clock.sleep(30.0)
        assert await without_restart(restart(), began) == restarted
        assert (limit.restart_s, limit.timeout.when()) == (lost_s, began + 60.0 + lost_s)


async def test_a_restart_longer_than_the_limit_does_not_end_the_answer(clock: Clock) -> None:
    async def restart() -> bool:
        await clock.sleep(600.0)
        return True

    async with limit_answer(clock.monotonic() + 60.0):
        assert await without_restart(restart(), clock.monotonic())


async def test_a_restart_without_a_deadline_and_one_outside_of_an_answer(clock: Clock) -> None:
    async def restart() -> bool:
        await clock.sleep(600.0)
        return True

    async with limit_answer(None) as limit:
        assert await without_restart(restart(), clock.monotonic())
    assert await without_restart(restart(), clock.monotonic())
    assert limit.restart_s == 600.0
