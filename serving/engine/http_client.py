"""HTTP/1.1 to one server: whole requests and responses over connections that stay open in between.

Each turn of each agent is one small request. A library for all of HTTP took a third of a turn's CPU time.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

import msgspec

CONNECT_S = 10.0
KEEPALIVE_S = 4.0
"""How long a client may keep an idle connection; vLLM closes its side after 5 seconds."""

MOST_BYTES = 2**24
"""Largest content of a response, unless a request names another limit."""

HEAD_BYTES = 2**16
"""Largest head of a response."""

SECRET_CHARACTERS = 8
"""A shorter API key (`EMPTY`) is a word that any response may have."""


class HttpError(Exception):
    """The connection was lost before a whole response arrived."""


class NotConnected(HttpError):
    """No connection could be opened, so nothing was sent."""


class Refused(NotConnected):
    """Nothing listens there."""


class TimedOut(HttpError):
    """No whole response arrived in time."""


class Unusable(HttpError):
    """A response arrived, and is not read: it is too large, or compressed."""


class NotSendable(HttpError):
    """The address or the API key cannot be written as HTTP. The message quotes neither."""

    def __init__(self) -> None:
        super().__init__("the address or the API key cannot be written as HTTP")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole response. Names in `headers` are in lower case."""

    status: int
    content: bytes
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The content as text; invalid UTF-8 becomes U+FFFD."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """Return the content as JSON. Raises `ValueError` if it is not JSON."""
        try:
            return msgspec.json.decode(self.content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error


class HttpClient:
    """Connections to one server, as many as there are requests in flight; a context manager.

    It ignores the environment's proxies and follows no redirects: an engine is reached directly. A cancelled
    request closes its connection, and vLLM then aborts the request. Responses are never decompressed, and a
    server's words never contain the API key.

    Args:
        root: address before all paths, such as `http://127.0.0.1:8000`.
        socket: Unix socket to connect to instead of TCP.
        api_key: sent as bearer token.
        timeout_s: seconds that one request may take.
    """

    def __init__(self, root: str, socket: Path | None, api_key: str | None, timeout_s: float) -> None:
        self._root = root
        self._socket = socket
        self._api_key = api_key
        self._secret = (api_key or "").encode() if len(api_key or "") >= SECRET_CHARACTERS else b""
        self._timeout_s = timeout_s
        self._idle: list[_Connection] = []  # the last used one is last

    async def send(
        self,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> HttpResponse:
        """Send a request and wait for the whole response, whatever its status.

        Args:
            path: path after the server's root.
            content: JSON to post; without it, the request is a GET.
            most_bytes: largest content of the response.

        Raises `HttpError`: see its subclasses.
        """
        request = self._write(path, content, headers or {})
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = self._take_idle() or await self._connect()
                try:
                    response = await connection.exchange(request, most_bytes)
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError as error:
            raise TimedOut(f"no answer within {self._timeout_s:g} s") from error
        self._idle.append(connection)
        if not self._secret:
            return response
        reason = self._hide_key(response.reason.encode()).decode()
        return replace(response, content=self._hide_key(response.content), reason=reason)

    def _hide_key(self, words: bytes) -> bytes:
        return words.replace(self._secret, b"(the API key)")

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # the event loop closes the sockets

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @cached_property
    def _server(self) -> dict[str, Any]:
        """The arguments that connect to the server over TCP. Raises `NotSendable`."""
        try:
            url = urlsplit(self._root)
            is_safe, port = {"http": False, "https": True}[url.scheme], url.port
        except (ValueError, KeyError):
            raise NotSendable from None
        # asyncio would load the certificates again for each connection.
        safety = ssl.create_default_context() if is_safe else None
        return {"host": url.hostname, "port": port or (443 if is_safe else 80), "ssl": safety}

    @cached_property
    def _fixed(self) -> tuple[str, str]:
        """The path before all paths, and the header lines of all requests. Raises `NotSendable`."""
        url = urlsplit(self._root)
        lines = [url.path, f"Host: {url.netloc}"]
        lines += ["User-Agent: speedrunner", "Accept: */*", "Accept-Encoding: identity"]
        if self._api_key:
            lines.append(f"Authorization: Bearer {self._api_key}")
        if not all(line.isascii() and line.isprintable() for line in lines):
            raise NotSendable
        return url.path, "".join(f"{line}\r\n" for line in lines[1:])

    def _write(self, path: str, content: bytes | None, headers: Mapping[str, str]) -> bytes:
        """Return a request's bytes. Raises `NotSendable`."""
        before, lines = self._fixed
        lines += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if content is None:
            return f"GET {before}{path} HTTP/1.1\r\n{lines}\r\n".encode()
        lines += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        return f"POST {before}{path} HTTP/1.1\r\n{lines}\r\n".encode() + content

    def _take_idle(self) -> _Connection | None:
        """Return the last used connection if it is still good; close all others that are not."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                if self._socket is not None:
                    _, connection = await loop.create_unix_connection(_Connection, str(self._socket))
                else:
                    _, connection = await loop.create_connection(_Connection, **self._server)
        except TimeoutError as error:
            raise NotConnected(f"no connection within {CONNECT_S:g} s") from error
        except OSError as error:
            raise Refused(error.strerror or str(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._unread = bytearray()
        self._arrival: asyncio.Future[None] | None = None
        """Something arrived, or the connection has ended."""
        self._end: HttpError | None = None
        """Why nothing more arrives."""
        self._most_bytes = 0
        self._stays = True
        """Whether the server accepts another request."""
        self._used = 0.0

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent. After an answer nothing may have arrived, such as a second
        copy of it: the next request would take that as its answer."""
        is_recent = time.monotonic() - self._used < KEEPALIVE_S
        return self._stays and is_recent and self._end is None and not self._unread

    def close(self) -> None:
        """Close it at once."""
        self._transport.abort()

    async def exchange(self, request: bytes, most_bytes: int) -> HttpResponse:
        """Send a request and return its response. After an error the connection must be closed.

        Raises `HttpError`.
        """
        self._most_bytes = most_bytes
        self._transport.write(request)
        try:
            status = 0
            while status < 200:  # statuses below are no answers
                head = (await self._read_to(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
                version, code, *reason = first.split(" ", 2)
                status = int(code)
            pairs = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            content = await self._read_content(status, headers)
        except ValueError:
            raise HttpError("what arrived is not HTTP") from None
        if version != "HTTP/1.1" or headers.get("connection", "").lower() == "close":
            self._stays = False
        self._used = time.monotonic()
        return HttpResponse(status, content, "".join(reason), headers)

    async def _read_content(self, status: int, headers: Mapping[str, str]) -> bytes:
        """Return a response's content. Raises `HttpError`, `ValueError`."""
        if (coding := headers.get("content-encoding", "identity").lower()) != "identity":
            raise Unusable(f"the answer is compressed ({coding[:20]}), although none may be")
        if status in (204, 304):
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            content = bytearray()
            while size := int((await self._read_to(b"\r\n")).partition(b";")[0], 16):
                self._check_size(len(content) + size)
                content += (await self._read(size + 2))[:-2]
            while await self._read_to(b"\r\n") != b"\r\n":  # further headers
                pass
            return bytes(content)
        if (length := headers.get("content-length")) is not None:
            self._check_size(int(length))
            return await self._read(int(length))
        self._stays = False
        while self._end is None:
            await self._wait()
        self._check_size(len(self._unread))
        return self._take(len(self._unread))

    async def _read_to(self, end: bytes) -> bytes:
        while (place := self._unread.find(end)) < 0:
            await self._wait()
        return self._take(place + len(end))

    async def _read(self, size: int) -> bytes:
        while len(self._unread) < size:
            await self._wait()
        return self._take(size)

    def _check_size(self, size: int) -> None:
        if size < 0:
            raise ValueError
        if size > self._most_bytes:
            raise self._too_large

    @property
    def _too_large(self) -> Unusable:
        return Unusable(f"the answer has more than {self._most_bytes:,} bytes, too many for its request")

    def _take(self, size: int) -> bytes:
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    async def _wait(self) -> None:
        """Wait until more has arrived. Raises `HttpError`: nothing more can."""
        if self._end is not None:
            raise self._end
        self._arrival = asyncio.get_running_loop().create_future()
        await self._arrival

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > self._most_bytes + HEAD_BYTES:
            self._end = self._too_large
            self.close()
        self._wake()

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end = self._end or HttpError(str(error or "") or "the server closed it")
        self._wake()
