"""Loading a module of definitions once, in a process of its own, to see whether that works."""

from __future__ import annotations

import re

from speedrunner.sandbox.code_session import CodeSession
from speedrunner.sandbox.settings import Sandbox

LOAD_WALL_S = 5.0
"""Seconds that a module may take to load."""


async def load_failure(sandbox: Sandbox, source: str) -> tuple[str, list[int]] | None:
    """Load a module.

    Returns:
        Why it cannot be loaded, and in which lines that happened, the outermost call's first; `None` where it
        can be.

    Raises:
        SandboxError: no process starts.
    """
    async with CodeSession(sandbox) as session:
        loaded = await session.execute(source, LOAD_WALL_S)
    if loaded.error is None:
        return None
    return loaded.error, [int(line) for line in re.findall(r'File "<execute 1>", line (\d+)', loaded.text)]
