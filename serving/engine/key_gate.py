"""Rejects requests without the server's API key: ASGI middleware in the server's own process.

vLLM itself requires its key only on some paths; other paths complete prompts, too.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class KeyGate:
    """Answers 401 on every path, existing or not, unless the request has the key as bearer token.

    The connection of a refused request is closed; its body is not read.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ['VLLM_API_KEY']}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or refuse one request or connection."""
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        allowed = len(given) == 1 and hmac.compare_digest(given[0], self._expected)
        if allowed or scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            # Otherwise uvicorn reads the whole body, whatever its length, to reuse the connection.
            close = (b"connection", b"close")
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0"), close]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body"})
