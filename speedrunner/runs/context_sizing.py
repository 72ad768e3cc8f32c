"""Choose the context of a run's models: as the GPUs or the server allow, and as the run has recorded it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from serving.deployment import server_gpus
from serving.endpoints import running_endpoint
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
    shares = await server_gpus(setup.services, check=False)
    model_configs = [
        await size_model(model_config, running_endpoint(model_config, options), gpus, say)
        for (model_config, options), gpus in zip(setup.services, shares, strict=True)
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
