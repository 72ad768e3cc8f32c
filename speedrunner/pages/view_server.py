"""Serve the viewer on this machine only."""

from __future__ import annotations

import asyncio
import hmac
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from speedrunner.pages.loopback import find_refusal
from speedrunner.pages.site import POLICY, Answer, Site

if TYPE_CHECKING:
    from starlette.applications import Starlette

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
"""All HTTP methods, so that refused ones are handled like everything else."""

UPDATES = "updates/"
"""Begins the address of the stream of a page's newer versions."""

PAUSE_S = 0.25
"""Seconds between two checks whether the server ends."""

GROWING = re.compile(rb'<body data-growing="(\d{1,4})"')

HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def application(site: Site, token: str, is_ending: Callable[[], bool] = lambda: False) -> Starlette:
    """Return an application with the pages of a site below `/TOKEN/`. It refuses requests that lack the
    token, name another host, or come from a page of another origin.

    Args:
        is_ending: whether open streams must end.
    """
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route

    def refused(status: int, why: str) -> Response:
        return Response(why + "\n", status, HEADERS, "text/plain")

    async def answer(request: Request) -> Response:
        foreign = find_refusal(request.headers.getlist("host"), request.headers.get("origin"))
        if foreign is not None:
            return refused(*foreign)
        if request.method not in ("GET", "HEAD"):
            return refused(405, "only reading pages is allowed")
        given, slash, path = request.path_params["path"].partition("/")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return refused(403, "the address lacks its token: use the one that `speedrunner view` printed")
        if not slash:
            return RedirectResponse(f"/{token}/", headers=HEADERS)
        query = dict(request.query_params)

        async def read(path: str) -> Answer:
            return await run_in_threadpool(site.answer, path or "index.html", query)

        if path.startswith(UPDATES):
            newer = follow_page(lambda: read(path.removeprefix(UPDATES)), is_ending)
            return StreamingResponse(newer, headers=HEADERS, media_type="text/event-stream")
        page = await read(path)
        return Response(page.content, page.status, HEADERS, page.kind)

    return Starlette(routes=[Route("/{path:path}", answer, methods=METHODS)])


async def follow_page(
    read: Callable[[], Awaitable[Answer]], is_ending: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield a page as a server-sent event now and after each change, until it can no longer grow.

    The event `page` has the HTML as a JSON string; the event `end` is the last one.
    """
    shown = b""
    while not is_ending():
        page = await read()
        if page.content != shown:
            shown = page.content
            yield b"event: page\ndata: " + msgspec.json.encode(shown.decode()) + b"\n\n"
        growing = GROWING.search(shown)
        if growing is None:
            yield b"event: end\ndata:\n\n"
            return
        waited = 0.0
        while waited < int(growing[1]) and not is_ending():
            await asyncio.sleep(PAUSE_S)
            waited += PAUSE_S


def serve(site: Site, token: str, listener: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM, then raise `KeyboardInterrupt`."""
    import uvicorn

    config = uvicorn.Config(
        application(site, token, lambda: server.should_exit),
        lifespan="off",
        access_log=False,
        log_level="error",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
