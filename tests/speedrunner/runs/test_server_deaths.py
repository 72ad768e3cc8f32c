"""Runs play again after a death of their server, a limited number of times in a row."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from serving.errors import EngineDead, ServerDied, ServerFailed
from speedrunner.runs import server_deaths
from speedrunner.runs.server_deaths import MOST_DEATHS, survive_deaths
from speedrunner.runs.shutdown import Interrupted, Shutdown


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_deaths, "PAUSE_S", 0.0)


DEATH = ServerDied("the engine died: killed by SIGKILL\nand more")


async def survived(ends: list[Exception | str]) -> tuple[str, list[str]]:
    """The result after work that ends like this each time, and what was said."""
    said: list[str] = []
    left = iter(ends)

    async def play() -> str:
        end = next(left)
        if isinstance(end, Exception):
            raise end
        return end

    return await survive_deaths(play, Shutdown(said.append), said.append), said


async def test_work_goes_on_with_another_server() -> None:
    result, said = await survived([DEATH, ServerFailed("no memory left"), "done"])
    assert result == "done"
    assert said == [
        "the engine died: killed by SIGKILL; a new one is started, and the run resumes",
        "no memory left; a new one is started, and the run resumes",
    ]


@pytest.mark.parametrize("error", [ServerFailed("no weights"), EngineDead("refuses the API key")])
async def test_what_no_new_server_mends_ends_the_work(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        await survived([error, "done"])


async def test_too_many_deaths_end_it() -> None:
    with pytest.raises(ServerDied):
        await survived([DEATH] * (MOST_DEATHS + 1) + ["done"])
    result, said = await survived([DEATH] * MOST_DEATHS + ["done"])
    assert (result, len(said)) == ("done", MOST_DEATHS)


async def test_a_signal_between_two_servers_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_deaths, "PAUSE_S", 1000.0)
    shutdown = Shutdown(lambda line: None)

    async def play() -> None:
        shutdown.clean_up()
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
        raise DEATH

    with pytest.raises(Interrupted):
        await shutdown.run(survive_deaths(play, shutdown, lambda line: None))
