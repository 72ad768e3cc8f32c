"""An engine's address, and what a server there says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from serving.engine.http_client import HttpClient, HttpError, HttpResponse
from serving.errors import ServerFailed

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

    @property
    def root(self) -> str:
        """The prefix of a vLLM server's other paths, such as `/health`."""
        return self.base_url.removesuffix("/v1")

    def client(self, timeout_s: float) -> HttpClient:
        """Return an HTTP client for paths after `root`.

        Args:
            timeout_s: see `HttpClient`.
        """
        return HttpClient(self.root, self.socket, self.api_key, timeout_s)

    async def health(self, timeout_s: float = 5.0) -> int | None:
        """Return the status with which a server reports its health; 0 if nothing listens here, and `None` if
        none answers in time."""
        try:
            async with self.client(timeout_s) as client:
                return (await client.send("/health")).status
        except HttpError as error:
            return 0 if error.failure == "refused" else None

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
