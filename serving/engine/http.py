"""HTTP requests to an engine, each returning a whole response. No other module uses the HTTP library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

CONNECT_S = 10.0
MAX_CONNECTIONS = 1000
KEEPALIVE_S = 4.0
"""How long a client may keep an idle connection; vLLM closes its side after 5 seconds."""


class HttpError(Exception):
    """The connection was lost before a whole response arrived."""


class NotConnected(HttpError):
    """No connection could be opened, so nothing was sent."""


class Refused(NotConnected):
    """Nothing listens there."""


class TimedOut(HttpError):
    """No whole response arrived in time."""


class NotSendable(HttpError):
    """The address or a header cannot be written as HTTP. The message quotes neither."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole response. Names in `headers` are case-insensitive."""

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
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error


class HttpClient:
    """Connections to one server, kept open for the next request; a context manager.

    It ignores the environment's proxies and follows no redirects: an engine is reached directly. A cancelled
    request closes its connection, and vLLM then aborts the request.

    Args:
        root: address before all paths, such as `http://127.0.0.1:8000`.
        socket: Unix socket to connect to instead of TCP.
        api_key: sent as bearer token.
        timeout_s: seconds that one request may take.
    """

    def __init__(self, root: str, socket: Path | None, api_key: str | None, timeout_s: float) -> None:
        self._root = root
        self._socket = socket
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str) -> HttpResponse:
        """Send a GET request. Raises `HttpError`."""
        return await self.request("GET", path)

    async def post(self, path: str, content: bytes, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Send JSON. Raises `HttpError`."""
        return await self.request("POST", path, content, headers)

    async def request(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Send a request and wait for the whole response, whatever its status.

        Args:
            path: path after the server's root, or a whole URL.
            content: JSON.

        Raises `HttpError`: see its subclasses.
        """
        if self._session is None:
            self._session = self._open()
        url = self._root + path if path.startswith("/") else path
        body = None if content is None else _Json(content)
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                whole = await response.read()
                return HttpResponse(response.status, whole, response.reason or "", response.headers)
        except aiohttp.ClientConnectorError as error:
            raise Refused(error.os_error.strerror or str(error.os_error)) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise NotConnected(f"no connection within {CONNECT_S:g} s") from error
        except TimeoutError as error:
            raise TimedOut(f"no answer within {self._timeout.total:g} s") from error
        except ValueError as error:
            raise NotSendable("the address or a header cannot be written as HTTP") from error
        except (aiohttp.ClientError, OSError) as error:
            raise HttpError(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _open(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector
        if self._socket is None:
            connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_S)
        else:
            connector = aiohttp.UnixConnector(
                str(self._socket), limit=MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_S
            )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=_Request,
        )


class _Request(aiohttp.ClientRequest):
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
