"""Addresses and API keys of running servers, from options and model configs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from serving.engine.endpoint import Endpoint
from serving.errors import InvalidModelConfig, ServerFailed
from serving.model_config import ModelConfig
from serving.options import ServiceOptions


def check_keys(services: Iterable[tuple[ModelConfig, ServiceOptions]]) -> None:
    """Raise `InvalidModelConfig` or `ServerFailed` if an API key is missing or invalid."""
    for service in services:
        running_endpoint(*service)


def running_endpoint(model_config: ModelConfig, options: ServiceOptions) -> Endpoint | None:
    """Return the address of a running server; `None` if one must be started. Sends nothing.

    Raises:
        InvalidModelConfig, ServerFailed: the address or the API key is invalid, or the key is missing.
    """
    if options.url is not None:
        return Endpoint.parse(options.url, api_key=_key(model_config, options))
    if model_config.base_url is not None:
        return Endpoint(model_config.base_url.rstrip("/"), api_key=_key(model_config, options))
    return None


def _key(model_config: ModelConfig, options: ServiceOptions) -> str | None:
    """Return the API key of a running server from the environment."""
    name = options.api_key_env or model_config.api_key_env
    if name is not None:
        where = f"environment variable {name}"
        key = os.environ.get(name, "").strip()
        if not key:
            raise InvalidModelConfig(f"model {model_config.name!r}: {where} with its API key is not set")
    elif model_config.hosted and model_config.api == "responses":
        raise InvalidModelConfig(
            f"model {model_config.name!r}: `api: responses` of a hosted model needs an API key: write"
            " the name of its environment variable into api_key_env of the model config"
        )
    else:
        return None
    if not re.fullmatch("[!-~]+", key):
        raise ServerFailed(f"{where} contains no API key: a key is one word of printable ASCII characters")
    return key
