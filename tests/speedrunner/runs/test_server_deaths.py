"""Runs play again after a death of their server, a limited number of times in a row."""

from __future__ import annotations

import pytest

from serving.errors import EngineDead, ServerDied, ServerFailed
from speedrunner.runs import server_deaths
from speedrunner.runs.server_deaths import MOST_DEATHS, survive_deaths
from speedrunner.runs.shutdown import Shutdown
from tests.clocks import Clock


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(monkeypatch, "speedrunner.runs.server_deaths")
    monkeypatch.setattr(server_deaths, "PAUSE_S", 0.0)
    return clock


DEATH = ServerDied("the engine died: killed by SIGKILL\nand more")


async def survived(clock: Clock, ends: list[Exception | str], uptime_s: float = 1.0) -> tuple[str, list[str]]:
    """The result after work that ends like this each time, and what was said."""
    said: list[str] = []
    left = iter(ends)

    async def play() -> str:
        clock.advance(uptime_s)
        end = next(left)
        if isinstance(end, Exception):
            raise end
        return end

    return await survive_deaths(play, Shutdown(said.append), said.append), said


async def test_work_goes_on_with_another_server(clock: Clock) -> None:
    result, said = await survived(clock, [DEATH, ServerFailed("no memory left"), "done"])
    assert result == "done"
    assert said == [
        "the engine died: killed by SIGKILL; a new one is started, and the run resumes",
        "no memory left; a new one is started, and the run resumes",
    ]


@pytest.mark.parametrize("error", [ServerFailed("no weights"), EngineDead("refuses the API key")])
async def test_what_no_new_server_mends_ends_the_work(clock: Clock, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        await survived(clock, [error, "done"])


async def test_many_deaths_in_a_row_end_it_and_rare_ones_do_not(clock: Clock) -> None:
    many = [DEATH] * (MOST_DEATHS + 1)
    with pytest.raises(ServerDied):
        await survived(clock, [*many, "done"])
    result, said = await survived(clock, [*many, "done"], uptime_s=server_deaths.LONG_UPTIME_S + 1)
    assert (result, len(said)) == ("done", len(many))
