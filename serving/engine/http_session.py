"""The parts of HTTP that aiohttp does. Its import takes 0.15 s, so commands that send nothing do without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

CONNECT_S = 10.0

KEEPALIVE_S = 4.0
"""How long a client may keep an idle connection; vLLM closes its side after 5 seconds."""


def open_session(socket: Path | None, headers: Mapping[str, str], timeout_s: float) -> aiohttp.ClientSession:
    """Return connections to one server, as many as there are requests in flight.

    Args:
        socket: Unix socket to connect to instead of TCP.
        headers: headers of all requests.
        timeout_s: seconds that one request may take.
    """
    limits: dict[str, Any] = {"limit": 0, "keepalive_timeout": KEEPALIVE_S}
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(socket), **limits) if socket else aiohttp.TCPConnector(**limits),
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S),
        headers=headers,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        request_class=_CheckedRequest,
    )


class _CheckedRequest(aiohttp.ClientRequest):
    """A request that refuses a connection on which something arrived after the last answer. The library would
    take that, such as a second copy of the answer, as the answer to this request."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send the request. Raises `aiohttp.ClientConnectionError`."""
        if conn.protocol is not None and conn.protocol.should_close:
            raise aiohttp.ClientConnectionError("the server sent more than one answer to a request")
        return await super().send(conn)


class Json(aiohttp.Payload):
    """JSON that is sent in one piece. For bytes over 1 MiB the library warns, since copying them takes time,
    and would send them in small pieces, which takes longer."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content, content_type="application/json")

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the text."""
        return str(self._value.decode(encoding, errors))

    async def write(self, writer: Any) -> None:
        """Send it."""
        await writer.write(self._value)
