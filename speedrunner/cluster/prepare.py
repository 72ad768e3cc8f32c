"""Everything that a node without a network has to find, brought to where it looks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from envs import EnvironmentFault
from serving import hub, weights
from serving.errors import ServingError
from serving.model_card import ModelCard
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.cluster.environments import opened
from speedrunner.cluster.subject import Subject
from speedrunner.config.schema import ClassConfig

Say = Callable[[str], None]


class Prepared(msgspec.Struct, frozen=True):
    """One model or environment.

    Attributes:
        name: which.
        text: what is there now, of what size and where; or why it is not.
    """

    name: str
    ready: bool
    text: str


def prepare(subject: Subject, status: Say, say: Callable[[Prepared], None]) -> list[Prepared]:
    """Fetch or make what the runs of a subject need. One that fails leaves the others alone.

    Args:
        status: shows what is done at the moment.
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
    """What is prepared, and how; each model's folder once, whichever cards share it."""
    models = {card.base_url or weights.model_path(card): card for card in subject.cards}
    for card in models.values():
        yield f"model {card.name}", partial(_model, card)
    for env in subject.environments:
        yield f"environment {env.name}", partial(_environment, env)


def _environment(env: ClassConfig, status: Say) -> str:
    return opened(env)


def _model(card: ModelCard, status: Say) -> str:
    """Weights and tokenizer. Raises `ServingError`."""
    if card.hosted:
        return f"nothing to fetch: it is hosted at {card.base_url}, which nodes have to reach"
    place = weights.prepare(card, status)
    folder = hub.fetch(place, card.revision, status) if card.id else Path(place)
    if card.route == "tokens":
        ChatTokenizer(place, card.revision)
    return f"{hub.size_bytes(folder) / 1e9:.3g} GB in {folder}"
