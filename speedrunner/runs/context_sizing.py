"""Choose the context of a run's models: as the GPUs or the server allow, and as the run has recorded it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from serving.endpoints import running_endpoint
from serving.engine.gpus import GpuReport, read_gpus
from serving.gpu_check import divide_gpus
from serving.model_config import ModelConfig
from serving.sizing import size_model
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Process
from speedrunner.store.stored_run import RunDirectoryError


async def sized_setup(setup: Setup, say: Callable[[str], None]) -> Setup:
    """Return the setup with its models fitted to the GPUs here, or to the server that it names.

    Args:
        say: called with a line about each fitted model.

    Raises:
        InvalidModelConfig, ServerFailed: see `serving.sizing.size_model`.
    """
    services = setup.services
    endpoints = [running_endpoint(*service) for service in services]
    # A running server uses no GPU here.
    started = [
        model_config for (model_config, _), place in zip(services, endpoints, strict=True) if place is None
    ]
    report = (
        await asyncio.to_thread(read_gpus)
        if any(model_config.gpus for model_config in started)
        else GpuReport()
    )
    divided = iter(divide_gpus(started, report))
    model_configs = [
        await size_model(model_config, endpoint, next(divided) if endpoint is None else [], say)
        for (model_config, _), endpoint in zip(services, endpoints, strict=True)
    ]
    return replace(setup, model_config=model_configs[0], inducer_model_config=model_configs[-1])


def with_recorded_contexts(path: Path, processes: Sequence[Process], setup: Setup) -> Setup:
    """Return the setup with the contexts that a run has recorded, even if more would fit here.

    A run is one experiment: its episodes must not get longer after a move to a larger GPU.

    Args:
        path: the run's directory.
        processes: the processes that worked on the run so far.

    Raises:
        RunDirectoryError: a model has less context here.
    """
    if not processes:
        return setup
    before = processes[-1]
    actor = _with_recorded_context(path, before.actor, setup.model_config)
    others = actor
    if setup.inducer_model_config is not setup.model_config:
        others = _with_recorded_context(path, before.inducer, setup.inducer_model_config)
    return replace(setup, model_config=actor, inducer_model_config=others)


def _with_recorded_context(path: Path, before: ModelConfig, model_config: ModelConfig) -> ModelConfig:
    if model_config.hosted or before.name != model_config.name or before.context == model_config.context:
        return model_config
    if before.context > model_config.context:
        raise RunDirectoryError(
            f"{path} has a context of {before.context:,} tokens, but {model_config.name} has"
            f" {model_config.context:,} here: resume it on larger GPUs or with a server that has"
            f" --max-model-len {before.context}, or start another run with run.dir=NEW"
        )
    return msgspec.structs.replace(model_config, context=before.context)
