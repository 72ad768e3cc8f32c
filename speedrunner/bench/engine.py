"""The engine that is measured: a running one, or one that is started."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from serving.deployment import Deployment, deploy, server_log
from serving.engine.metrics import CacheConfig
from serving.errors import ServerFailed
from serving.model_card import ModelCard
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.console import Status
from speedrunner.runs.setup import Setup, set_up


def tokens_route(card: ModelCard) -> ModelCard:
    """Return the model configuration. Raises `InvalidConfig` unless it is on the tokens route."""
    if card.route != "tokens":
        raise InvalidConfig(
            f"model {card.name!r} is on the {card.route} route: its cache cannot be read and its requests"
            " cannot be replayed"
        )
    return card


def playing_setup(overrides: Sequence[str]) -> Setup:
    """Return an engine of the tokens route and what is played on it. Raises `InvalidConfig`."""
    setup = set_up(compose(list(overrides)))
    tokens_route(setup.card)
    return setup


def open_engine(card: ModelCard, config: Config, status: Status) -> AbstractAsyncContextManager[Deployment]:
    """Open the engine of a model configuration. Raises `InvalidCard`, `ServerFailed`."""
    return deploy(card, config.serving, log=server_log(card), say=status, waiting=status)


def cache_of(deployment: Deployment) -> CacheConfig:
    """Return the prefix cache of its first replica. Raises `ServerFailed` if it reports none."""
    cache = deployment.replicas[0].cache
    if cache is None:
        raise ServerFailed(f"the engine at {deployment.endpoint} reports no prefix cache")
    return cache


def describe_cache(card: ModelCard, cache: CacheConfig) -> str:
    """Describe a model's cache in one line."""
    kind = "hybrid" if cache.hybrid else "attention"
    return (
        f"{card.name}: {kind} cache of {cache.num_gpu_blocks} blocks of {cache.block_size} tokens, matched in"
        f" units of {cache.match_unit}{'' if cache.enable_prefix_caching else ', OFF'}"
    )


def with_flags(card: ModelCard, **flags: int) -> ModelCard:
    """Return the model configuration with other flags of its server; write `_` for `-`."""
    changed = card.server.flags | {name.replace("_", "-"): value for name, value in flags.items()}
    return msgspec.structs.replace(card, server=msgspec.structs.replace(card.server, flags=changed))
