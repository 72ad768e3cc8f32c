"""Play again after a death of a server that we started, as the same command would."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from serving.errors import ServerDied, ServerFailed
from speedrunner.runs.shutdown import Shutdown

T = TypeVar("T")

MOST_DEATHS, LONG_UPTIME_S = 10, 1800.0
"""Most deaths in a row, a failed start after one included; so many seconds without a death end the row. A job
of 100 hours thus survives a rare fault at any time."""

PAUSE_S = 10.0
"""Seconds before the next start: processes of the dead server may still hold GPU memory."""


async def survive_deaths(
    play: Callable[[], Awaitable[T]], shutdown: Shutdown, say: Callable[[str], None]
) -> T:
    """Return the result of `play`, which is called again when its server has died.

    Raises `ServerDied`, `ServerFailed` after too many deaths in a row, and all other errors of `play`.
    """
    deaths = 0
    while True:
        began = time.monotonic()
        shutdown.begin()
        try:
            return await play()
        except (ServerDied, ServerFailed) as error:
            shutdown.check()
            if isinstance(error, ServerFailed) and not deaths:
                raise  # it never worked
            deaths = 1 if time.monotonic() - began > LONG_UPTIME_S else deaths + 1
            if deaths > MOST_DEATHS:
                raise
            say(f"{str(error).splitlines()[0]}; a new one is started, and the run resumes")
        await asyncio.sleep(PAUSE_S)
