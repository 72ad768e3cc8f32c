"""HTTP requests to one server, each returning a whole response."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, cast
from urllib.parse import urlsplit

import httptools
import msgspec

CONNECT_S = 10.0

KEEPALIVE_S = 4.0
"""How long a client may keep an idle connection; vLLM closes its side after 5 seconds."""

MOST_BYTES = 2**27
"""Largest content of a response: many times that of the longest answer."""

SECRET_CHARACTERS = 8
"""A shorter API key (`EMPTY`) is a word that any response may have."""

NOT_SENDABLE = "it cannot be sent as HTTP; check the server's address and API key"

Failure = Literal["lost", "refused", "not connected", "timed out", "unusable", "not sendable"]


class HttpError(Exception):
    """No response was read.

    Attributes:
        failure: `lost` before the whole response arrived; `refused`: nothing listens there; `not connected`
            in time, so nothing was sent; `timed out`; `unusable`: a response arrived that is compressed or
            too large; `not sendable`: the address or a header cannot be written as HTTP. The message then
            quotes neither.
    """

    def __init__(self, message: str, failure: Failure = "lost") -> None:
        super().__init__(message)
        self.failure = failure


class HttpResponse(msgspec.Struct, frozen=True):
    """A whole response. Names in `headers` are in lower case."""

    status: int
    content: bytes
    reason: str = ""
    headers: Mapping[str, str] = {}

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
        timeout_s: seconds that one request may take, with its connection.
    """

    def __init__(self, root: str, socket: Path | None, api_key: str | None, timeout_s: float) -> None:
        self._url = urlsplit(root)
        self._socket = socket
        self._secret = (api_key or "").encode() if len(api_key or "") >= SECRET_CHARACTERS else b""
        self._timeout_s = timeout_s
        # It reads the certificates, and serves all connections.
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        lines = [f"Host: {self._url.netloc}", "Accept-Encoding: identity"]
        lines += [f"Authorization: Bearer {api_key}"] if api_key else []
        self._is_sendable = all(line.isascii() and line.isprintable() for line in (root, *lines))
        self._head = "".join(f"{line}\r\n" for line in lines)
        self._idle: list[_Connection] = []  # the last used one is last
        self._is_closed = False

    async def send(
        self, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Send a request and wait for the whole response, whatever its status.

        Args:
            content: JSON to post; without it, the request is a GET.

        Raises `HttpError`.
        """
        if not self._is_sendable:
            raise HttpError(NOT_SENDABLE, "not sendable")
        head = f"{'GET' if content is None else 'POST'} {self._url.path}{path} HTTP/1.1\r\n{self._head}"
        head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        if content is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        request = f"{head}\r\n".encode() + (content or b"")
        began = asyncio.get_running_loop().time()
        connection = self._take_idle() or await self._connect()
        try:
            response = await connection.exchange(request, began, self._timeout_s)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()
        if not self._secret:
            return response
        reason = self._hide_key(response.reason.encode()).decode()
        return msgspec.structs.replace(response, content=self._hide_key(response.content), reason=reason)

    def _hide_key(self, words: bytes) -> bytes:
        for form in (self._secret, self._secret.replace(b"/", rb"\/")):  # as some servers write JSON
            words = words.replace(form, b"(the API key)")
        return words

    def _take_idle(self) -> _Connection | None:
        """Return the last used connection if it is still good; close all that are not."""
        connections, self._idle = self._idle, []
        for connection in connections:
            if connection.is_reusable and time.monotonic() - connection.used < KEEPALIVE_S:
                self._idle.append(connection)
            else:
                connection.close()
        return self._idle.pop() if self._idle else None

    async def _connect(self) -> _Connection:
        loop, host = asyncio.get_running_loop(), self._url.hostname or ""
        port = self._url.port or (443 if self._tls else 80)
        limit_s = min(CONNECT_S, self._timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                if self._socket:
                    _, connection = await loop.create_unix_connection(_Connection, str(self._socket))
                else:
                    _, connection = await loop.create_connection(_Connection, host, port, ssl=self._tls)
        except TimeoutError as error:
            raise HttpError(f"no connection within {limit_s:g} s", "not connected") from error
        except OSError as error:
            raise HttpError(error.strerror or str(error), "refused") from error
        except UnicodeError as error:  # a label of the host name is empty or too long
            raise HttpError(NOT_SENDABLE, "not sendable") from error
        return connection

    async def close(self) -> None:
        """Close the idle connections. One in flight is closed when its request ends."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # the event loop closes the sockets

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Connection(asyncio.Protocol):
    """One connection, which carries one request at a time. The parser calls the methods `on_...`.

    Attributes:
        is_reusable: whether another request can be sent. After an answer nothing may have arrived, such as a
            second copy of it: the next request would take that as its answer.
        used: monotonic time of the last answer's end.
    """

    def __init__(self) -> None:
        self.is_reusable = False
        self.used = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._ends_with_connection = False

    def close(self) -> None:
        """Close it at once."""
        self._limit.cancel()
        self._transport.abort()

    def exchange(self, request: bytes, began: float, limit_s: float) -> asyncio.Future[HttpResponse]:
        """Send a request and return its future response. After an error the connection must be closed.

        Args:
            began: time of the event loop from which the limit counts.
        """
        loop = asyncio.get_running_loop()
        self.is_reusable = False
        self._answer = answer = loop.create_future()
        self._limit = loop.call_at(
            began + limit_s, self._fail, f"no answer within {limit_s:g} s", "timed out"
        )
        if self._transport.is_closing():
            self._fail("the connection ended before the request was sent")
        self._transport.write(request)
        return answer

    def _fail(self, message: str, failure: Failure = "lost") -> None:
        self.is_reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(HttpError(message, failure))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("what arrived is not HTTP")

    def connection_lost(self, error: Exception | None) -> None:
        if self._ends_with_connection and error is None:
            self.on_message_complete()
        self._fail("the connection ended before the answer did")

    def on_message_begin(self) -> None:
        self.is_reusable = False
        self._reason, self._headers = b"", dict[str, str]()
        self._content = bytearray()

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        coding = self._headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            self._fail(f"the answer is compressed ({coding[:20]}), although none may be", "unusable")
        has_end = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._ends_with_connection = not has_end and self._parser.get_status_code() >= 200

    def on_body(self, piece: bytes) -> None:
        if len(self._content) + len(piece) > MOST_BYTES:
            self._fail(f"the answer has more than {MOST_BYTES:,} bytes", "unusable")
            self._transport.abort()
        else:
            self._content += piece

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._answer is None or self._answer.done():  # statuses below are no answers
            return
        self._limit.cancel()
        self._ends_with_connection = False
        self.is_reusable, self.used = self._parser.should_keep_alive(), time.monotonic()
        reason = self._reason.decode("latin-1")
        self._answer.set_result(HttpResponse(status, bytes(self._content), reason, self._headers))
