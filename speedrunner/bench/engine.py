"""The engine that is measured: a running one, one that is started, or one with canned answers."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import msgspec

from serving.deployment import Deployment, deploy, server_log
from serving.engine.endpoint import Endpoint
from serving.engine.folders import private_folder
from serving.engine.metrics import CacheConfig
from serving.errors import ServerFailed
from serving.model_card import ModelCard
from speedrunner.bench import canned_answers
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.console import Status
from speedrunner.runs.setup import Setup, set_up


def tokens_route(card: ModelCard) -> ModelCard:
    """The card, which is on the tokens route. Raises `InvalidConfig` where it is not."""
    if card.route != "tokens":
        raise InvalidConfig(
            f"model {card.name!r} is on the {card.route} route: its cache cannot be read and its requests"
            " cannot be replayed"
        )
    return card


def playing_setup(overrides: Sequence[str]) -> Setup:
    """What the overrides name: an engine of the tokens route, and what is played. Raises `InvalidConfig`."""
    setup = set_up(compose(list(overrides)))
    tokens_route(setup.card)
    return setup


def opened(card: ModelCard, config: Config, status: Status) -> AbstractAsyncContextManager[Deployment]:
    """The card's engine, in service while the context lasts. Raises `InvalidCard`, `ServerFailed`."""
    return deploy(card, config.serving, log=server_log(card), say=status, waiting=status)


def cache_of(deployment: Deployment) -> CacheConfig:
    """Return the prefix cache of its first replica. Raises `ServerFailed` if it reports none."""
    cache = deployment.replicas[0].cache
    if cache is None:
        raise ServerFailed(f"the engine at {deployment.endpoint} reports no prefix cache")
    return cache


def cache_text(card: ModelCard, cache: CacheConfig) -> str:
    """The card's name and its cache, for people."""
    kind = "hybrid" if cache.hybrid else "attention"
    return (
        f"{card.name}: {kind} cache of {cache.num_gpu_blocks} blocks of {cache.block_size} tokens, matched in"
        f" units of {cache.match_unit}{'' if cache.enable_prefix_caching else ', OFF'}"
    )


def with_flags(card: ModelCard, **flags: int) -> ModelCard:
    """Return the model configuration with other flags of its server; write `_` for `-`."""
    changed = card.server.flags | {name.replace("_", "-"): value for name, value in flags.items()}
    return msgspec.structs.replace(card, server=msgspec.structs.replace(card.server, flags=changed))


@asynccontextmanager
async def canned_engine(answers: Sequence[list[int]], delay_s: float = 0.0) -> AsyncIterator[Endpoint]:
    """Run a server that gives these answers (token ids) in turn, each after `delay_s` seconds."""
    folder = private_folder()
    folder.mkdir(mode=0o700)
    socket, pipe = folder / "http", asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", canned_answers.__file__, str(socket), str(delay_s)), stdin=pipe, stdout=pipe
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(answers))
        process.stdin.close()
        if not await process.stdout.readline():
            raise ServerFailed("the server with canned answers ended before it was ready")
        yield Endpoint.on_socket(socket)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
