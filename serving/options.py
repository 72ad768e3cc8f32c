"""User options for reaching or starting an engine, and the address that they give."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from serving.errors import InvalidModelConfig, ServerFailed
from serving.model_config import ModelConfig

if TYPE_CHECKING:
    from serving.engine.endpoint import Endpoint

START_TIMEOUT_S = 1800.0
REQUEST_TIMEOUT_S = 1800.0
OUTAGE_TIMEOUT_S = 900.0

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Check = Literal["once", "never"]


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach or start an engine."""

    #: A running server to use, `unix:/path/to/socket` or `http://HOST:PORT/v1`; `None` starts one.
    url: Text | None = None
    #: Environment variable with the API key for `url`; `None` for a server that asks for none.
    api_key_env: Text | None = None
    #: Seconds that a starting server may take until it is ready.
    start_timeout_s: Seconds = START_TIMEOUT_S
    #: Seconds that one request may take.
    request_timeout_s: Seconds = REQUEST_TIMEOUT_S
    #: Seconds that a request may wait in all for a server that others run and that refuses connections or is
    #: overloaded, and for rate limits. A server of ours that dies is replaced.
    outage_timeout_s: Seconds = OUTAGE_TIMEOUT_S
    #: Seconds without progress while requests run after which a server of ours counts as hung. `None`: one
    #: per 1,000 tokens of context, at least 300.
    hang_timeout_s: Seconds | None = None
    #: Hold conversations back that the prefix cache has no room for.
    admission: bool = True
    #: Check tool calls and the prefix cache before the first episode: `once` for each engine, or `never`.
    check: Check = "once"


def running_endpoint(model_config: ModelConfig, options: ServiceOptions) -> Endpoint | None:
    """Return the address of a running server; `None` if one must be started. Sends nothing.

    Raises:
        InvalidModelConfig, ServerFailed: the address or the API key is invalid, or the key is missing.
    """
    from serving.engine.endpoint import Endpoint  # its HTTP library takes long to import

    if options.url is not None:
        return Endpoint.parse(options.url, api_key=_key(model_config, options))
    if model_config.base_url is not None:
        return Endpoint(model_config.base_url.rstrip("/"), api_key=_key(model_config, options))
    return None


def _key(model_config: ModelConfig, options: ServiceOptions) -> str | None:
    """Return the API key of a running server from the environment."""
    if (name := options.api_key_env or model_config.api_key_env) is None:
        return None
    where, key = f"environment variable {name}", os.environ.get(name, "").strip()
    if not key:
        raise InvalidModelConfig(f"model {model_config.name!r}: {where} with its API key is not set")
    if not re.fullmatch("[!-~]+", key):
        raise ServerFailed(f"{where} contains no API key: a key is one word of printable ASCII characters")
    return key
