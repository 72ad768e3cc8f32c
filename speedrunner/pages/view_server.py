"""Serve the viewer on this machine only."""

from __future__ import annotations

import hmac
import socket
from typing import TYPE_CHECKING

from speedrunner.pages.loopback import find_refusal
from speedrunner.pages.site import POLICY, Site

if TYPE_CHECKING:
    from starlette.applications import Starlette

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
"""All HTTP methods, so that refused ones are handled like everything else."""

HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def application(site: Site, token: str) -> Starlette:
    """Return an application with the pages of a site below `/TOKEN/`. It refuses requests that lack the
    token, name another host, or come from a page of another origin."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
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
        page = site.answer(path or "index.html")  # one person reads: no threads
        return Response(page.content, page.status, HEADERS, page.kind)

    return Starlette(routes=[Route("/{path:path}", answer, methods=METHODS)])


def serve(site: Site, token: str, listener: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM, then raise `KeyboardInterrupt`."""
    import uvicorn

    config = uvicorn.Config(
        application(site, token),
        lifespan="off",
        access_log=False,
        log_level="error",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])
