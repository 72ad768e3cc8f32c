"""Prepares everything that a node without a network needs, in the places where the node looks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import envs
from envs import EnvironmentFault
from envs.env_registry import REGISTRY
from serving import hub, weights
from serving.errors import ServingError
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.cluster.needs import Needs
from speedrunner.config.schema import ClassConfig
from speedrunner.plain.findings import Finding, failure, ok

Say = Callable[[str], None]


def prepare_needs(needs: Needs, status: Say) -> Iterator[Finding]:
    """Download or create what the runs need. If one thing fails, the others continue.

    Args:
        status: shows the current activity.

    Returns:
        A finding for each thing: what is there now, with size and place; or why it is not.
    """
    for name, bring in _steps(needs, status):
        status(f"preparing {name}")
        try:
            yield ok(name, bring())
        except (ServingError, EnvironmentFault) as error:
            yield failure(name, str(error))
        except OSError as error:
            yield failure(name, f"{error.strerror or error}: {error.filename}")


def open_task(env: ClassConfig) -> str:
    """Open a task: simulators and Java start, and their compiled code enters its cache.

    Returns:
        What was done, in one line.

    Raises `EnvironmentFault`: it does not play here, or there is none with this name and options.
    """
    started = time.monotonic()
    one = envs.make(env.name, **env.options)
    try:
        REGISTRY.find(env.name).preload()
        one.warm_up()
        task = envs.splits(env.name, **env.options).train[0]
        one.reset(task)
        return f"{task.name}, {task.index} opens ({time.monotonic() - started:.1f} s)"
    except EnvironmentFault:
        raise
    except Exception as error:  # a simulator may raise anything
        raise EnvironmentFault(f"{env.name} does not start: {type(error).__name__}: {error}") from error
    finally:
        one.close()


def _steps(needs: Needs, status: Say) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name and the function of each step; each model's folder once, even if model configs share
    it."""
    models = {
        model_config.base_url or weights.model_path(model_config): model_config
        for model_config in needs.model_configs
    }
    for model_config in models.values():
        yield f"model {model_config.name}", partial(_model, model_config, status)
    for env in needs.environments:
        yield f"environment {env.name}", partial(open_task, env)


def _model(model_config: ModelConfig, status: Say) -> str:
    """Prepare weights and tokenizer. Raises `ServingError`."""
    if model_config.hosted:
        return (
            f"nothing to download: it is hosted at {model_config.base_url}, which nodes must be able to reach"
        )
    place = weights.prepare(model_config, status)
    folder = hub.fetch(place, model_config.revision, status) if model_config.id else Path(place)
    if model_config.api == "completions":
        ChatTokenizer(place, model_config.revision)
    return f"{hub.size_bytes(folder) / 1e9:.3g} GB in {folder}"
