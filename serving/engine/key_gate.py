"""Lets nobody past who does not have the server's API key: ASGI middleware of the server's own process.

vLLM itself asks for its key on some paths only; others complete prompts, too.
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
    """Answers 401 on every path, also one that does not exist, unless the key comes as bearer token.

    The connection of a refused request is closed; its body is not read.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ['VLLM_API_KEY']}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request or connection on, or refuse it."""
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        allowed = len(given) == 1 and hmac.compare_digest(given[0], self._expected)
        if allowed or scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            # Otherwise uvicorn reads the body to its end to use the connection again, whatever its length.
            close = (b"connection", b"close")
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0"), close]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body"})
