"""HTTP requests to one server, each returning a whole response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

if TYPE_CHECKING:
    import aiohttp

MOST_BYTES = 2**24
"""Largest content of a response, unless a request names another limit."""

SECRET_CHARACTERS = 8
"""A shorter API key (`EMPTY`) is a word that any response may have."""


Failure = Literal["lost", "refused", "not connected", "timed out", "unusable", "not sendable"]


class HttpError(Exception):
    """No response was read.

    Attributes:
        failure: `lost` before the whole response arrived; `refused`: nothing listens there; `not connected`
            in time, so nothing was sent; `timed out`; `unusable`: a response arrived that is too large or
            compressed; `not sendable`: the address or a header cannot be written as HTTP. The message then
            quotes neither.
    """

    def __init__(self, message: str, failure: Failure = "lost") -> None:
        super().__init__(message)
        self.failure = failure


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
        self._timeout_s = timeout_s
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
            content: JSON to post; without it, the request is a GET.
            most_bytes: largest content of the response.

        Raises `HttpError`.
        """
        import aiohttp

        from serving.engine.http_session import CONNECT_S, Json, open_session

        if self._session is None:
            self._session = open_session(self._socket, self._headers, self._timeout_s)
        method, body = ("GET", None) if content is None else ("POST", Json(content))
        try:
            async with self._session.request(
                method, self._root + path, data=body, headers=headers, allow_redirects=False
            ) as response:
                whole = self._hide_key(await _read(response, most_bytes))
                reason = self._hide_key((response.reason or "").encode(errors="replace")).decode()
                return HttpResponse(response.status, whole, reason, response.headers)
        except aiohttp.ClientConnectorError as error:
            raise HttpError(error.os_error.strerror or str(error.os_error), "refused") from error
        except aiohttp.ConnectionTimeoutError as error:
            raise HttpError(f"no connection within {CONNECT_S:g} s", "not connected") from error
        except TimeoutError as error:
            raise HttpError(f"no answer within {self._timeout_s:g} s", "timed out") from error
        except ValueError as error:
            reason = "it cannot be sent as HTTP; check the server's address and API key"
            raise HttpError(reason, "not sendable") from error
        except (aiohttp.ClientError, OSError) as error:
            words = self._hide_key(str(error).encode(errors="replace")).decode()
            raise HttpError(" ".join(words.split())[:500] or type(error).__name__) from None

    def _hide_key(self, words: bytes) -> bytes:
        if self._secret:
            for form in (self._secret, self._secret.replace(b"/", rb"\/")):  # as some servers write JSON
                words = words.replace(form, b"(the API key)")
        return words

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


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Return a response's content. Raises `HttpError` if it is compressed, or larger than the limit."""
    if (coding := response.headers.get("Content-Encoding", "identity").lower()) != "identity":
        raise HttpError(f"the answer is compressed ({coding[:20]}), although none may be", "unusable")
    pieces, size = list[bytes](), response.content_length or 0
    if size <= most_bytes:
        size = 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                break
    if size > most_bytes:
        words = f"the answer has more than {most_bytes:,} bytes, too many for its request"
        raise HttpError(words, "unusable")
    return b"".join(pieces)
