"""The model cards that a configuration names, and what their tokens cost."""

from __future__ import annotations

from serving.cards import ModelCard, adapted, load_card
from serving.usage import Prices
from speedrunner.config.schema import Config


def actor_card(config: Config) -> ModelCard:
    """The card of the actor's model, with what the configuration changes in it. Raises `InvalidCard`."""
    model = config.model
    return adapted(load_card(model.card), replicas=model.replicas, load_format=model.load_format)


def inducer_card(config: Config, actor: ModelCard) -> ModelCard:
    """The card of every role but the actor, often the actor's own. Raises `InvalidCard`."""
    model = config.model
    other = actor if model.inducer is None else load_card(model.inducer)
    if other.name == actor.name:
        return actor  # one server is enough
    return other if other.hosted else adapted(other, load_format=model.load_format)


def prices_of(config: Config, *cards: ModelCard) -> dict[str, Prices]:
    """The price list of each card's model: its own, with what the configuration puts in its place."""
    return {card.name: config.prices.in_place_of(card.prices) for card in cards}
