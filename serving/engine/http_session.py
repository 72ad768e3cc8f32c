"""The parts of HTTP that aiohttp does. Its import takes 0.15 s, so commands that send nothing do without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from serving.engine.http_client import CONNECT_S, KEEPALIVE_S, Unusable


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


async def read_content(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Return a response's content. Raises `Unusable` if it is compressed, or larger than the limit."""
    if (coding := response.headers.get("Content-Encoding", "identity").lower()) != "identity":
        raise Unusable(f"the answer is compressed ({coding[:20]}), although none may be")
    pieces, size = list[bytes](), response.content_length or 0
    if size <= most_bytes:
        size = 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                break
    if size > most_bytes:
        raise Unusable(f"the answer has more than {most_bytes:,} bytes, too many for its request")
    return b"".join(pieces)


class _CheckedRequest(aiohttp.ClientRequest):
    """A request that refuses a connection on which something arrived after the last answer. The library would
    take that, such as a second copy of the answer, as the answer to this request."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send the request. Raises `aiohttp.ClientConnectionError`."""
        if conn.protocol is not None and conn.protocol.should_close:
            raise aiohttp.ClientConnectionError("the server sent more than one answer to a request")
        return await super().send(conn)


class _Json(aiohttp.Payload):
    """JSON that is sent in one piece. For bytes over 1 MiB the library warns, since copying them takes time,
    and would send them in small pieces, which takes longer."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content, content_type="application/json")

    @property
    def size(self) -> int:
        return len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self._value.decode(encoding, errors))

    async def write(self, writer: Any) -> None:
        await writer.write(self._value)


def json_body(content: bytes) -> aiohttp.Payload:
    """Return JSON as the body of a request."""
    return _Json(content)
