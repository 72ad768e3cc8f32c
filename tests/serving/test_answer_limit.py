"""The time limit of an answer, with an engine that is away."""

from __future__ import annotations

import pytest

from serving.answer_limit import AnswerLimit, pause_limit
from tests.clocks import Clock


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "serving.answer_limit")


@pytest.mark.parametrize("error", [None, ValueError("the engine is gone")])
async def test_time_without_an_engine_does_not_count(clock: Clock, error: ValueError | None) -> None:
    began = clock.monotonic()
    async with AnswerLimit(began + 60.0) as limit:
        await clock.sleep(30.0)
        try:
            with pause_limit(began):
                await clock.sleep(600.0)
                if error is not None:
                    raise error
        except ValueError:
            pass
        assert (limit.paused_s, limit.timeout.when()) == pytest.approx((630.0, began + 60.0 + 630.0))


async def test_a_limit_that_has_ended_is_not_moved(clock: Clock) -> None:
    async with AnswerLimit(clock.monotonic() + 60.0) as limit:
        pass
    with pause_limit(clock.monotonic()):
        await clock.sleep(600.0)
    assert limit.paused_s == 0.0


async def test_afterwards_the_limit_holds_again(clock: Clock) -> None:
    async def answer() -> None:
        async with AnswerLimit(clock.monotonic() + 60.0):
            with pause_limit(clock.monotonic()):
                await clock.sleep(600.0)
            await clock.sleep(60.0)

    with pytest.raises(TimeoutError):
        await answer()
