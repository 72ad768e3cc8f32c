"""Play again after a death of a server that we started, as the same command would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from serving.errors import ServerDied, ServerFailed
from speedrunner.runs.shutdown import Shutdown

T = TypeVar("T")

MOST_DEATHS = 10
"""Most deaths that one process survives, failed starts after a death included."""

PAUSE_S = 10.0
"""Seconds before the next start: processes of the dead server may still hold GPU memory."""


async def survive_deaths(
    play: Callable[[], Awaitable[T]], shutdown: Shutdown, say: Callable[[str], None]
) -> T:
    """Return the result of `play`, which is called again when its server has died.

    Raises `ServerDied`, `ServerFailed` after too many deaths, and all other errors of `play`.
    """
    deaths = 0
    while True:
        try:
            return await play()
        except (ServerDied, ServerFailed) as error:
            shutdown.check()
            if deaths == MOST_DEATHS or (isinstance(error, ServerFailed) and not deaths):
                raise
            say(f"{str(error).splitlines()[0]}; a new one is started, and the run resumes")
        deaths += 1
        shutdown.begin()
        await asyncio.sleep(PAUSE_S)
        shutdown.check()
