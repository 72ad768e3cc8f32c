"""A game as an MCP server: the actor's tools, and one tool that begins an episode."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from serving.tokens.tools import ToolSpec
from speedrunner.skill_server.game import START, Game
from speedrunner.skill_server.player import Player

if TYPE_CHECKING:
    import anyio

NAME = "speedrunner"

STATUS = "speedrunner/episode"
"""Key of an episode's state in the metadata of a result, which clients do not show to models."""

LARGEST_MESSAGE = DEFAULT_MAX_REQUEST_BODY_SIZE
"""Bytes of the largest message of a client, as over HTTP."""

QUEUED = 8
"""Messages of the standard input that are read in advance."""

_LOG = logging.getLogger(__name__)


def make_server(game: Game, player: Player) -> Server[Any]:
    """Return the server of one client."""
    tools = [_tool(each) for each in (game.start_tool, *game.tools.values())]

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        arguments = params.arguments or {}
        is_start = params.name == START
        reply = await (player.start(arguments) if is_start else player.call(params.name, arguments))
        texts = [reply.text] if reply.end is None else [reply.text, reply.end]
        return CallToolResult(
            content=[TextContent(text=text) for text in texts],
            is_error=reply.is_error,
            _meta=None if reply.status is None else {STATUS: reply.status},
        )

    return Server(
        NAME,
        version=version("speedrunner"),
        instructions=game.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(game: Game) -> None:
    """Serve the client at the standard input and output until it closes one of them.

    A message that is too large ends the session, too.
    """
    stdin = cast("anyio.AsyncFile[str]", _input_lines(0))
    try:
        async with (
            game.workers(1) as pool,
            Player(game, pool.worker) as player,
            stdio_server(stdin) as (reader, writer),
        ):
            server = make_server(game, player)
            await server.run(reader, writer, server.create_initialization_options())
    except* BrokenPipeError:
        pass


def _tool(spec: ToolSpec) -> Tool:
    return Tool(name=spec.name, description=spec.doc, input_schema=spec.parameters)


async def _input_lines(file: int) -> AsyncIterator[str]:
    """Yield the lines of an open file, up to one that is larger than `LARGEST_MESSAGE`.

    The package's own reader cannot be interrupted: a signal would end the server only with the next line.
    """
    loop, lines, room = asyncio.get_running_loop(), asyncio.Queue[bytes](), threading.Semaphore(QUEUED)

    def read() -> None:
        # The loop may be closed before the input ends.
        with os.fdopen(os.dup(file), "rb") as stream, suppress(RuntimeError):
            while line := stream.readline(LARGEST_MESSAGE + 1):
                room.acquire()
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        if len(line) > LARGEST_MESSAGE:
            _LOG.error("the session ends: the client sent more than %d bytes in a message", LARGEST_MESSAGE)
            return
        room.release()
        yield line.decode(errors="replace")
