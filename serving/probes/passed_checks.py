"""Remembers which servers have passed the check at start: one small file for each configuration."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from serving.deployment import Deployment
from serving.engine.cache_config import CacheConfig
from serving.engine.metrics import read_metrics
from serving.errors import ServerFailed
from serving.model import Model
from serving.model_config import NOT_SERVED
from serving.model_configs import CHECKOUT

FOLDER = CHECKOUT / ".cache" / "checks"


class CheckedServer(msgspec.Struct, frozen=True):
    """Everything that decides whether a server passes the check.

    Attributes:
        battery: version of the check.
        model: model config, without `NOT_SERVED`.
        engine: version of vLLM.
        tokenizer: digest of tokenizer and chat template.
        caches: prefix cache of each replica, without its number of blocks.
        endpoint: address of a server that we attached to; empty for our own, which always has these flags.
        started: start of that server, in Unix seconds; after a restart it may have other flags.
    """

    battery: int
    model: dict[str, Any]
    engine: str
    tokenizer: str
    caches: list[CacheConfig]
    endpoint: str = ""
    started: float = 0.0

    @property
    def digest(self) -> str:
        """SHA-256 of all fields."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class _Passed(msgspec.Struct, frozen=True):
    server: CheckedServer
    time: float
    format: int = 1


async def identify_server(deployment: Deployment, model: Model, battery: int) -> CheckedServer | None:
    """Return everything that a passed check of this server depends on; `None` if the server does not report
    it.

    Args:
        battery: version of the check.
    """
    if model.tokenizer is None:
        return None
    caches = [msgspec.structs.replace(each.cache, num_gpu_blocks=0) for each in model.replicas if each.cache]
    configuration = msgspec.to_builtins(model.model_config)
    try:
        reply = await deployment.endpoint.get("/version")
        found = CheckedServer(
            battery=battery,
            model={name: value for name, value in configuration.items() if name not in NOT_SERVED},
            engine=reply.json()["version"],
            tokenizer=model.tokenizer.digest,
            caches=caches,
        )
        if deployment.server is not None:
            return found
        started = (await read_metrics(deployment.endpoint)).started
    except (ServerFailed, ValueError, KeyError, TypeError):
        return None
    if started is None:
        return None
    return msgspec.structs.replace(found, endpoint=str(deployment.endpoint), started=started)


def has_passed(server: CheckedServer, folder: Path) -> bool:
    """Return whether a passed check of this server is stored. A damaged file, or another user's, does not
    count."""
    try:
        descriptor = os.open(_file(server, folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
                return False
            return msgspec.json.decode(file.read(), type=_Passed).server == server
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False


def store_passed(server: CheckedServer, folder: Path) -> None:
    """Store that this server passed. Does nothing if the folder cannot be written."""
    file = _file(server, folder)
    new = file.with_suffix(f".{secrets.token_hex(4)}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(msgspec.json.encode(_Passed(server, round(time.time(), 3))))
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)


def _file(server: CheckedServer, folder: Path) -> Path:
    return folder / f"{server.digest}.json"
