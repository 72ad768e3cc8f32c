"""An engine without a model, in a process of its own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from serving.engine.endpoint import Endpoint
from serving.engine.folders import private_folder
from serving.errors import ServerFailed
from serving.model_configs import CHECKOUT


@asynccontextmanager
async def engine_process(
    program: tuple[str, ...], content: Any, *arguments: str
) -> AsyncIterator[tuple[Endpoint, int]]:
    """Run an engine until the context ends. Yields its address and process id.

    Args:
        program: the command. It gets the path of its socket and `arguments`, reads `content` as JSON from
            standard input, and prints a line when it is ready.

    Raises `ServerFailed` if it ends before.
    """
    folder = private_folder()
    folder.mkdir(mode=0o700)
    socket, pipe = folder / "http", asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(*program, str(socket), *arguments), cwd=CHECKOUT, stdin=pipe, stdout=pipe
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(content))
        process.stdin.close()
        if not await process.stdout.readline():
            raise ServerFailed(f"{program[-1]} ended before it was ready")
        yield Endpoint.on_socket(socket), process.pid
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
