"""Model cards as files: one YAML file per model, read, checked and adapted to what a run asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from serving.card_check import contradictions
from serving.errors import InvalidCard
from serving.model_card import ModelCard
from typed.records import WrongData, record
from typed.values import suggest

CHECKOUT = Path(__file__).resolve().parents[1]
MODELS = CHECKOUT / "models"

SHAPES = "shapes/build.py"
"""The recipe, relative to `MODELS`, that makes model folders without weights."""


class _OnceEach(yaml.SafeLoader):
    """Refuses a key that a mapping has twice, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value} is set twice, again in line {line}"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def list_cards() -> list[str]:
    """Names of the cards in `models/`, sorted."""
    return sorted(path.stem for path in MODELS.glob("*.yaml"))


def load_card(name_or_path: str) -> ModelCard:
    """Read and check a card.

    Args:
        name_or_path: name of a card in `models/`, or the path of any `.yaml` file.

    Raises:
        InvalidCard: there is no such card, or it says something it must not.
    """
    is_path = name_or_path.endswith((".yaml", ".yml"))
    file = Path(name_or_path).expanduser() if is_path else MODELS / f"{name_or_path}.yaml"
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _OnceEach)
    except FileNotFoundError:
        if is_path:
            raise InvalidCard(f"no model card at {file}") from None
        known = list_cards()
        raise InvalidCard(
            f"no model card is called {name_or_path!r}{suggest(name_or_path, known)}; "
            f"known: {', '.join(known)}; the path of a .yaml file will do too"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidCard(f"model card {file} cannot be read: {' '.join(str(error).split())}") from None
    try:
        return _card(content)
    except WrongData as error:
        raise InvalidCard(f"model card {file}: {error}") from None


def adapted(
    card: ModelCard,
    replicas: int | None = None,
    load_format: str | None = None,
    prefix_caching: bool | None = None,
    roles: Mapping[str, Mapping[str, Any]] | None = None,
) -> ModelCard:
    """The card with other `replicas`, another `load_format`, with prefix caching or without (`None` or `auto`
    keeps what it says), and other values of its roles' fields, by role.

    Raises `InvalidCard` if the card does not allow it.
    """
    changes = {"replicas": replicas, "load_format": load_format}
    given = {name: value for name, value in changes.items() if value not in (None, "auto")}
    content = msgspec.to_builtins(card) | given
    if prefix_caching is not None:
        content["server"]["flags"]["enable-prefix-caching"] = given["prefix_caching"] = prefix_caching
    for role, values in (roles or {}).items():
        content["roles"][role] |= values
        given |= {f"{role}.{name}": value for name, value in values.items()}
    try:
        return _card(content)
    except WrongData as error:
        settings = " ".join(f"model.{name}={value}" for name, value in given.items())
        raise InvalidCard(f"{settings} does not go with model {card.name!r}: {error}") from None


def _card(content: object) -> ModelCard:
    """A card whose fields go together; one without weights has its shape's folder in their place."""
    card = record(ModelCard, content)
    if problems := list(contradictions(card)):
        raise WrongData(*problems)
    if card.load_format != "dummy":
        return card
    folder = f".cache/models/{card.shape}-shape"
    return msgspec.structs.replace(card, path=folder, recipe=SHAPES, id=None, revision=None)
