"""An engine's address, and HTTP requests to it, each returning a whole response.

No other module uses the HTTP library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec

from serving.errors import ServerFailed

CONNECT_S = 10.0
MAX_CONNECTIONS = 1000
KEEPALIVE_S = 4.0
"""How long a client may keep an idle connection; vLLM closes its side after 5 seconds."""

MOST_BYTES = 2**24
"""Largest content of a response, unless a request names another limit."""

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
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error


class HttpClient:
    """Connections to one server, kept open for the next request; a context manager.

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
        self._headers = {"Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._secret = (api_key or "").encode() if len(api_key or "") >= SECRET_CHARACTERS else b""
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> HttpResponse:
        """Send a request and wait for the whole response, whatever its status.

        Args:
            path: path after the server's root, or a whole URL.
            content: JSON to post; without it, the request is a GET.
            most_bytes: largest content of the response.

        Raises `HttpError`: see its subclasses.
        """
        if self._session is None:
            self._session = self._open()
        url = self._root + path if path.startswith("/") else path
        method, body = ("GET", None) if content is None else ("POST", _Json(content))
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                whole = self._hide_key(await _read(response, most_bytes))
                reason = self._hide_key((response.reason or "").encode()).decode()
                return HttpResponse(response.status, whole, reason, response.headers)
        except aiohttp.ClientConnectorError as error:
            raise Refused(error.os_error.strerror or str(error.os_error)) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise NotConnected(f"no connection within {CONNECT_S:g} s") from error
        except TimeoutError as error:
            raise TimedOut(f"no answer within {self._timeout.total:g} s") from error
        except ValueError as error:
            raise NotSendable("the address or a header cannot be written as HTTP") from error
        except (aiohttp.ClientError, OSError) as error:
            words = self._hide_key(str(error).encode(errors="replace")).decode()
            raise HttpError(" ".join(words.split())[:500] or type(error).__name__) from None

    def _hide_key(self, words: bytes) -> bytes:
        return words.replace(self._secret, b"(the API key)") if self._secret else words

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
        limits: dict[str, Any] = {"limit": MAX_CONNECTIONS, "keepalive_timeout": KEEPALIVE_S}
        return aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(self._socket), **limits)
            if self._socket
            else aiohttp.TCPConnector(**limits),
            timeout=self._timeout,
            headers=self._headers,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=_Request,
        )


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
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


BUSY_S = 30.0
"""Longest wait for a live server's answer to a health request, in seconds."""

_FORMS = "http://HOST:PORT/v1, with any prefix before /v1, or unix:/path/to/socket"

NO_USER = (
    "the address of a server must have no user name and no password, since it is recorded: put its key into"
    " an environment variable, which api_key_env names"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of an OpenAI-compatible server.

    Attributes:
        base_url: the prefix of all paths (`/completions`), without a slash at its end; its host has no
            meaning if there is a socket.
        socket: the Unix socket to connect to instead of TCP.
        api_key: sent as bearer token.
    """

    base_url: str
    socket: Path | None = None
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str, api_key: str | None = None) -> Endpoint:
        """Read an address as users write it: `http://HOST:PORT/PREFIX/v1` (`/v1` is optional without a
        prefix) or `unix:PATH`. Raises `ServerFailed` for anything else."""
        if text.startswith("unix:"):
            path = Path(text.removeprefix("unix:").removeprefix("//"))
            if path.is_absolute():
                return cls.on_socket(path)
        else:
            try:
                url = urlsplit(text)
                well_formed = url.scheme in ("http", "https") and url.hostname and url.port != 0
            except ValueError:
                well_formed = False
            if well_formed and "@" in url.netloc:
                raise ServerFailed(NO_USER)
            root = url.path.rstrip("/") or "/v1" if well_formed else ""
            if root.endswith("/v1") and not url.query and not url.fragment:
                return cls(f"{url.scheme}://{url.netloc}{root}", api_key=api_key)
        raise ServerFailed(f"{text!r} is not the address of a server; write {_FORMS}")

    @classmethod
    def on_socket(cls, path: Path) -> Endpoint:
        """Return the endpoint of a server on a Unix socket; the folder's permissions replace a key."""
        return cls("http://localhost/v1", socket=path)

    def __str__(self) -> str:
        return f"unix:{self.socket}" if self.socket else self.base_url

    def client(self, timeout_s: float) -> HttpClient:
        """Return an HTTP client. Paths start at the root of a vLLM server: `/health`, `/metrics`.

        Args:
            timeout_s: seconds that one request may take.
        """
        return HttpClient(self.base_url.removesuffix("/v1"), self.socket, self.api_key, timeout_s)

    async def healthy(self, timeout_s: float = 5.0) -> bool:
        """Return whether a server answers here and reports that it is healthy."""
        return await self.health(timeout_s) == 200

    async def health(self, timeout_s: float) -> int | None:
        """Return the status with which a server reports its health; 0 if nothing listens here, and `None` if
        none answers in time."""
        try:
            async with self.client(timeout_s) as client:
                return (await client.send("/health")).status
        except Refused:
            return 0
        except HttpError:
            return None

    async def get(self, path: str, timeout_s: float = 10.0) -> HttpResponse:
        """Send one GET and return the answer. Raises `ServerFailed` without an answer or for a status other
        than 200."""
        try:
            async with self.client(timeout_s) as client:
                response = await client.send(path)
        except HttpError as error:
            raise ServerFailed(f"nothing answers at {self} ({error}); is the server running?") from error
        if response.status == 401:
            raise ServerFailed(
                f"the server at {self} refuses the API key"
                if self.api_key
                else f"the server at {self} requires an API key: set serving.api_key_env"
            )
        if response.status != 200:
            raise ServerFailed(f"the server at {self} answers {path} with status {response.status}")
        return response


class _Served(msgspec.Struct):
    id: str
    max_model_len: Annotated[int, msgspec.Meta(gt=0, lt=2**31)] | None = None


class _Models(msgspec.Struct):
    """The answer of `/v1/models`."""

    data: list[_Served]


async def attach(endpoint: Endpoint, model: str) -> int | None:
    """Check that a running server can be used: it answers, accepts the key and serves the model.

    Args:
        model: the served name of the model config in use.

    Returns:
        Its limit of prompt plus completion, in tokens; `None` if it does not report one.

    Raises `ServerFailed`: it cannot be used.
    """
    response = await endpoint.get("/v1/models")
    try:
        listed = msgspec.json.decode(response.content, type=_Models).data
    except (ValueError, RecursionError):
        raise ServerFailed(f"the server at {endpoint} is not OpenAI-compatible") from None
    served = {entry.id: entry.max_model_len for entry in listed}
    if model not in served:
        raise ServerFailed(f"the server at {endpoint} serves {', '.join(served) or 'nothing'}, not {model!r}")
    return served[model]
