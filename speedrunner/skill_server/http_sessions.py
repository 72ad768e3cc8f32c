"""A game as an MCP server over HTTP: one session of the protocol, with its own episodes, for each client.

The newest revision of the protocol has no sessions over HTTP. Its clients fall back to the revisions before
it if a server offers only these.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import uvicorn
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE, RequestBodyLimitMiddleware
from mcp_types import INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from speedrunner.pages.loopback import find_refusal
from speedrunner.skill_server.game import Game
from speedrunner.skill_server.mcp_server import make_server
from speedrunner.skill_server.player import IDLE_S, Player, describe_full
from speedrunner.workers.worker_pool import WorkerPool

PATH = "/mcp"

VERSION_HEADER = "mcp-protocol-version"

_LOG = logging.getLogger(__name__)


async def serve_http(game: Game, token: str, listener: socket.socket, sessions: int) -> None:
    """Serve clients until the task is cancelled.

    Args:
        token: what clients send as bearer token.
        listener: a socket on the loopback address.
        sessions: most clients at a time.
    """
    async with game.workers(sessions) as pool, asyncio.TaskGroup() as tasks:
        config = uvicorn.Config(
            HttpSessions(game, pool, tasks, token, sessions),
            lifespan="off",
            ws="none",
            access_log=False,
            log_level="critical",
            server_header=False,
        )
        await _Uvicorn(config).serve(sockets=[listener])


class _Uvicorn(uvicorn.Server):
    """A server that leaves signals to the command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


class HttpSessions:
    """The sessions of all clients, as an ASGI application.

    Args:
        pool: has a worker for each session.
        tasks: runs the sessions.
        token: what clients must send.
        limit: most sessions at a time.
    """

    def __init__(
        self, game: Game, pool: WorkerPool, tasks: asyncio.TaskGroup, token: str, limit: int
    ) -> None:
        self._game = game
        self._pool = pool
        self._tasks = tasks
        self._token = token
        self._limit = limit
        self._open: dict[str, StreamableHTTPServerTransport] = {}
        self._bounded = RequestBodyLimitMiddleware(self._answer, DEFAULT_MAX_REQUEST_BODY_SIZE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Its body is not read before its token is checked."""
        answer = self._refuse(Request(scope)) or self._bounded
        await answer(scope, receive, send)

    def _refuse(self, request: Request) -> Response | None:
        """Return the refusal of a request; `None` if it may reach a session."""
        foreign = find_refusal(request.headers.getlist("host"), request.headers.get("origin"))
        if foreign is not None:
            return Response(f"{foreign[1]}\n", foreign[0])
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), self._token.encode()):
            why = "send the header `Authorization: Bearer TOKEN` with the server's token"
            return Response(f"{why}\n", 401, {"WWW-Authenticate": "Bearer"})
        if request.url.path != PATH:
            return Response(f"the address of the server ends with {PATH}\n", 404)
        if request.method == "GET":  # an open stream would count as a request, and so prevent the idle limit
            return Response("this server has no stream: send POST\n", 405, {"Allow": "POST, DELETE"})
        version = request.headers.get(VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            supported = list(HANDSHAKE_PROTOCOL_VERSIONS)
            why = "an episode needs a session, which this revision does not have"
            data = {"supported": supported, "requested": version}
            return _error(400, UNSUPPORTED_PROTOCOL_VERSION, why, data)
        return None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        session = request.headers.get(MCP_SESSION_ID_HEADER)
        if session is None and request.method == "POST":
            if len(self._open) >= self._limit:
                refusal = _error(503, INVALID_REQUEST, describe_full(self._limit))
                return await refusal(scope, receive, send)
            return await self._begin(scope, receive, send)
        transport = self._open.get(session or "")
        if transport is None:
            return await _error(404, INVALID_REQUEST, "this session does not exist")(scope, receive, send)
        await transport.handle_request(scope, receive, send)

    async def _begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request that opens a session. If it is refused, the session ends."""
        session, status = uuid4().hex, 500
        transport = StreamableHTTPServerTransport(session, idle_timeout=IDLE_S)

        async def note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        connected = asyncio.Event()
        self._open[session] = transport
        self._tasks.create_task(self._play(session, transport, connected))
        await connected.wait()
        try:
            await transport.handle_request(scope, receive, note_status)
        finally:
            if status >= 400:
                await transport.terminate()

    async def _play(
        self, session: str, transport: StreamableHTTPServerTransport, connected: asyncio.Event
    ) -> None:
        """Serve one session until its client ends it or falls silent."""
        try:
            async with (
                Player(self._game, self._pool.worker) as player,
                transport.connect() as (reader, writer),
            ):
                connected.set()
                server = make_server(self._game, player)
                assert transport.idle_scope is not None
                with transport.idle_scope:
                    await server.run(reader, writer, server.create_initialization_options())
        except Exception:
            _LOG.exception("a session failed")
        finally:
            connected.set()  # if it failed before, the client waits for this
            del self._open[session]
            if not transport.is_terminated:
                await transport.terminate()


def _error(status: int, code: int, message: str, data: object = None) -> JSONResponse:
    """Return an answer with an error of the protocol."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)
