"""Load what a configuration names: model configs, and the task of a single episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

import envs
from envs import EnvironmentFault, Split, Task, UnknownTask
from serving.model_config import ModelConfig
from serving.model_configs import adapt, load_model_config
from speedrunner.config.schema import Config


def actor_model_config(config: Config, *, learns: bool = True) -> ModelConfig:
    """Return the actor's model config with the configuration's changes. Answers of an inducer must fit its
    context only if the method `learns`. Raises `InvalidModelConfig`."""
    model = config.model
    roles = {"actor": model.actor}
    if model.inducer_name in (None, model.name):
        roles["inducer"] = model.inducer
    return adapt(
        load_model_config(model.name),
        replicas=model.replicas,
        load_format=model.load_format,
        prefix_caching=model.prefix_caching,
        context=model.context,
        roles=roles,
        used=[*roles] if learns else ["actor"],
    )


def inducer_model_config(config: Config, actor: ModelConfig, *, learns: bool = True) -> ModelConfig:
    """Return the model config of every role except the actor; often the same. `learns` as for the actor.
    Raises `InvalidModelConfig`."""
    name = config.model.inducer_name
    other = actor if name is None else load_model_config(name)
    if other.name == actor.name:
        return actor  # one server is enough
    own = replace(config.model, load_format="auto", prefix_caching=None) if other.hosted else config.model
    return adapt(
        other,
        load_format=own.load_format,
        prefix_caching=own.prefix_caching,
        context=own.context,
        roles={"inducer": config.model.inducer},
        used=["inducer"] if learns else [],
    )


def choose_task(config: Config) -> Task:
    """Return the task of `task.name` and `task.index`.

    Missing values come from the first training task (with that name, if one is given). For a name without
    training tasks, or without a known split, the index is 0.

    Raises `EnvironmentFault`: no name is given, and the environment has no split with these options.
    """
    name, index = config.task.name, config.task.index
    try:
        trained = split(config.env.name, config.env.options).train
    except EnvironmentFault:
        if name is None:
            raise
        trained = []
    named = (task for task in trained if name in (None, task.name))
    first = next(named, Task(config.env.name, name or "", 0))
    return Task(config.env.name, first.name, first.index if index is None else index)


def split(env: str, options: Mapping[str, Any]) -> Split:
    """Return `envs.splits`; its error also says that a task can be named instead."""
    try:
        return envs.splits(env, **options)
    except UnknownTask as error:
        raise UnknownTask(f"{error}, or choose a task with task.name=... task.index=...") from None
