"""A game as an OpenEnv server on loopback: a WebSocket for each client, and what describes the server.

Speaks the protocol of openenv-core 0.3.0. Its client sends no headers of the user's choice, but the user and
password of an address, so the token may also be a password.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from speedrunner.pages.loopback import find_refusal
from speedrunner.skill_server.game import Game
from speedrunner.skill_server.openenv_session import (
    CallTool,
    Json,
    ListTools,
    OpenEnvSession,
    TextAction,
)
from speedrunner.skill_server.player import IDLE_S, Player, describe_full
from speedrunner.workers.worker_pool import WorkerPool

QUEUED = 8
"""Messages that may wait for their answers. A client that sends more loses its session."""

LARGEST_MESSAGE = 2**20
"""Bytes of the largest message of a client."""

NO_TOKEN = "send the server's token as a password (http://user:TOKEN@...), or `Authorization: Bearer TOKEN`\n"

MCP_REFUSED = "play over the WebSocket /ws; an MCP server is `speedrunner library serve`"

_LOG = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve_openenv(game: Game, token: str, listener: socket.socket, sessions: int) -> None:
    """Serve clients until the task is cancelled.

    Args:
        token: what clients send as bearer token or password.
        listener: a socket on the loopback address.
        sessions: most clients at a time.
    """
    async with game.workers(sessions) as pool:
        runner = web.AppRunner(make_application(game, pool, token, sessions), access_log=None)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


def make_application(game: Game, pool: WorkerPool, token: str, sessions: int) -> web.Application:
    """Return the server's application."""
    clients = _Clients(game, pool, sessions)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        foreign = find_refusal(request.headers.getall("Host", []), request.headers.get("Origin"))
        if foreign is not None:
            return web.Response(status=foreign[0], text=f"{foreign[1]}\n")
        if not _has_token(request.headers.get("Authorization", ""), token):
            return web.Response(status=401, text=NO_TOKEN, headers={"WWW-Authenticate": "Basic"})
        return await handler(request)

    app = web.Application(middlewares=[guard], client_max_size=LARGEST_MESSAGE)
    app.router.add_get("/ws", clients.play)
    app.on_shutdown.append(clients.end)
    for path, content in descriptions(game).items():
        app.router.add_get(path, _constant(content))
    app.router.add_post("/mcp", _refuse_mcp)
    return app


def descriptions(game: Game) -> dict[str, Json]:
    """Return what GET requests return, by path."""
    actions, components = msgspec.json.schema_components([TextAction, CallTool, ListTools])
    text = {"type": "string"}
    number = {"type": "integer", "minimum": 0}
    paths = ("/health", "/metadata", "/schema")
    return {
        "/health": {"status": "healthy"},
        "/metadata": {
            "name": game.config.env.name,
            "description": game.env.description,
            "version": version("speedrunner"),
        },
        "/schema": {
            "action": {"anyOf": list(actions), "$defs": components},
            "observation": {
                "type": "object",
                "properties": {"text": text, "is_error": {"type": "boolean"}, "episode": {"type": "object"}},
            },
            "state": {"type": "object", "properties": {"episode_id": text, "step_count": number}},
        },
        "/openapi.json": {
            "openapi": "3.1.0",
            "info": {"title": f"SpeedRunner: {game.config.env.name}", "version": version("speedrunner")},
            "paths": {
                path: {"get": {"responses": {"200": {"description": "The answer."}}}} for path in paths
            },
        },
    }


class _Clients:
    """The sessions of all clients."""

    def __init__(self, game: Game, pool: WorkerPool, limit: int) -> None:
        self._game = game
        self._pool = pool
        self._limit = limit
        self._sockets: set[web.WebSocketResponse] = set()

    async def play(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one client until it ends the session, vanishes or falls silent."""
        socket = web.WebSocketResponse(max_msg_size=LARGEST_MESSAGE)
        await socket.prepare(request)
        if len(self._sockets) >= self._limit:
            await _send(socket, _error("CAPACITY_REACHED", describe_full(self._limit)))
            await socket.close()
            return socket
        self._sockets.add(socket)
        try:
            async with Player(self._game, self._pool.worker) as player:
                await _converse(socket, OpenEnvSession(self._game, player))
        finally:
            self._sockets.discard(socket)
        await socket.close()
        return socket

    async def end(self, _app: web.Application) -> None:
        """End all sessions."""
        await asyncio.gather(*(each.close() for each in list(self._sockets)))


async def _converse(socket: web.WebSocketResponse, session: OpenEnvSession) -> None:
    """Answer a client's messages. Pings are answered during a long step too, since the socket is read."""
    waiting = asyncio.Queue[str](QUEUED)

    async def answer() -> None:
        try:
            while (found := await session.answer(await waiting.get())) is not None:
                await _send(socket, found)
        except ConnectionError:
            pass  # the client vanished
        except Exception:
            _LOG.exception("a session failed")
            await _send(socket, _error("SESSION_ERROR", "the server failed; its output has the reason"))
        await socket.close()

    answering = asyncio.create_task(answer())
    try:
        while True:
            async with asyncio.timeout(IDLE_S):  # the socket's own timeout restarts with each ping
                message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            waiting.put_nowait(message.data)
    except (TimeoutError, asyncio.QueueFull):
        pass
    finally:
        answering.cancel()
        await asyncio.wait([answering])


def _error(code: str, message: str) -> Json:
    return {"type": "error", "data": {"message": message, "code": code}}


async def _send(socket: web.WebSocketResponse, answer: Json) -> None:
    await socket.send_str(msgspec.json.encode(answer).decode())


def _has_token(authorization: str, token: str) -> bool:
    """Return whether a header has the token, as a bearer token or as a password."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


def _constant(content: Json) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(content)

    return answer


async def _refuse_mcp(request: web.Request) -> web.Response:
    """Answer as the protocol wants it of a server without MCP tools."""
    found: Any = None
    with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        found = msgspec.json.decode(await request.read())
    number = found.get("id") if isinstance(found, dict) else None
    error = {"code": -32601, "message": MCP_REFUSED}
    return web.json_response({"jsonrpc": "2.0", "id": number, "error": error})
