"""The engine to measure: a running one, or one that is started."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from serving.deployment import Deployment, deploy, server_log
from serving.engine.capacity import CacheConfig
from serving.errors import ServerFailed
from serving.model_config import ModelConfig
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.methods import Method
from speedrunner.plain.console import Status
from speedrunner.runs.setup import Setup, set_up

CACHE_TARGETS = {"attention": 0.99, "hybrid": 0.97}
"""Target for the cached share of the tokens that could be cached, by kind of cache."""


def completions_api(model_config: ModelConfig) -> ModelConfig:
    """Return the model config. Raises `InvalidConfig` unless it is on the completions API."""
    if model_config.api != "completions":
        raise InvalidConfig(
            f"model {model_config.name!r} is on the {model_config.api} API, where the cache cannot be"
            " read and requests cannot be replayed"
        )
    return model_config


def playing_setup(overrides: Sequence[str]) -> Setup:
    """Return a setup with an engine on the completions API, and episodes of one conversation. Raises
    `InvalidConfig`."""
    setup = set_up(compose(list(overrides)))
    completions_api(setup.model_config)
    if type(setup.method).play is not Method.play:
        raise InvalidConfig(
            f"method={setup.config.method.name} plays an episode in several conversations, which cannot be"
            " measured as one: choose another method"
        )
    return setup


def open_engine(
    model_config: ModelConfig, config: Config, status: Status, *, logs_steps: bool = False
) -> AbstractAsyncContextManager[Deployment]:
    """Open the engine of a model config. Raises `InvalidModelConfig`, `ServerFailed`."""
    log, options = server_log(model_config), config.serving
    return deploy(model_config, options, log=log, say=status, waiting=status, logs_steps=logs_steps)


def cache_of(deployment: Deployment) -> CacheConfig:
    """Return the prefix cache of its first replica. Raises `ServerFailed` if it reports none."""
    cache = deployment.replicas[0].cache
    if cache is None:
        raise ServerFailed(f"the engine at {deployment.endpoint} reports no prefix cache")
    return cache


def describe_cache(model_config: ModelConfig, cache: CacheConfig) -> str:
    """Describe a model's cache in one line."""
    kind = "hybrid" if cache.hybrid else "attention"
    return (
        f"{model_config.name}: {kind} cache of {cache.num_gpu_blocks} blocks of {cache.block_size} "
        f"tokens, matched in"
        f" units of {cache.match_unit}{'' if cache.enable_prefix_caching else ', OFF'}"
    )
