"""Prepares everything that a node without a network needs, in the places where the node looks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from envs import EnvironmentFault
from serving import hub, weights
from serving.errors import ServingError
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.cluster.cluster_subject import Subject
from speedrunner.cluster.environments import open_task
from speedrunner.config.schema import ClassConfig

Say = Callable[[str], None]


class Prepared(msgspec.Struct, frozen=True):
    """One model or environment.

    Attributes:
        name: its name.
        text: what is there now, with size and place; or why it is not.
    """

    name: str
    ready: bool
    text: str


def prepare(subject: Subject, status: Say, say: Callable[[Prepared], None]) -> list[Prepared]:
    """Download or create what the runs of a subject need. If one thing fails, the others continue.

    Args:
        status: shows the current activity.
        say: called with each thing when it is done.
    """
    done = []
    for name, bring in _steps(subject):
        status(f"preparing {name}")
        try:
            one = Prepared(name, True, bring(status))
        except (ServingError, EnvironmentFault) as error:
            one = Prepared(name, False, str(error))
        except OSError as error:
            one = Prepared(name, False, f"{error.strerror or error}: {error.filename}")
        say(one)
        done.append(one)
    return done


def _steps(subject: Subject) -> Iterator[tuple[str, Callable[[Say], str]]]:
    """Yield the name and the function of each step; each model's folder once, even if model configs share
    it."""
    models = {
        model_config.base_url or weights.model_path(model_config): model_config
        for model_config in subject.model_configs
    }
    for model_config in models.values():
        yield f"model {model_config.name}", partial(_model, model_config)
    for env in subject.environments:
        yield f"environment {env.name}", partial(_environment, env)


def _environment(env: ClassConfig, status: Say) -> str:
    return open_task(env)


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
