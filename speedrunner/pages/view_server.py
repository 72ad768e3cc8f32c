"""Serve the viewer on the loopback address of this machine only."""

from __future__ import annotations

import hmac
import os
import socket
from typing import TYPE_CHECKING

from speedrunner.pages.site import POLICY, Site

if TYPE_CHECKING:
    from starlette.applications import Starlette

ADDRESS = "127.0.0.1"

HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PortInUse(Exception):
    """Another process uses the port."""


def listen(port: int) -> socket.socket:
    """Return a socket on the loopback address; `port` 0: any free port. Raises `PortInUse`."""
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise PortInUse(
            f"port {port} is not available ({reason}): choose another --port, or 0 for a free one"
        ) from error


def application(site: Site, token: str) -> Starlette:
    """Return an application with the pages of a site below `/TOKEN/`. It refuses other tokens."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        if not hmac.compare_digest(request.path_params["token"].encode(), token.encode()):
            why = "the address lacks its token: use the one that `speedrunner view` printed\n"
            return Response(why, 403, HEADERS, "text/plain")
        page = site.answer(request.path_params["path"] or "index.html")  # one person reads: no threads
        return Response(page.content, page.status, HEADERS, page.kind)

    return Starlette(routes=[Route("/{token}/{path:path}", answer)])


def serve(site: Site, token: str, listener: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM, then raise `KeyboardInterrupt`."""
    import uvicorn

    config = uvicorn.Config(
        application(site, token),
        http="h11",  # its heads have a limit; those of the faster `httptools` have none
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])
