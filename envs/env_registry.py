"""Environments by name, imported only when they are created."""

from __future__ import annotations

from typing import Any

from envs.class_registry import Registry, parameters
from envs.text_env import EnvironmentFault, InvalidOption, Split, TextEnv, UnknownEnvironment
from speedrunner.plain.plain_records import format_value

ENVIRONMENTS = {
    "babyai": "envs.babyai:BabyAI",
    "scienceworld": "envs.scienceworld:ScienceWorld",
    "crafter": "envs.crafter:Crafter",
}
"""Registry name -> `package.module:Class`."""

REGISTRY = Registry(
    "environment",
    ENVIRONMENTS,
    TextEnv,  # type: ignore[type-abstract]
    UnknownEnvironment,
    InvalidOption,
    options_of=lambda kind: parameters(kind.splits, kind),
)


def make(name: str, **options: Any) -> TextEnv:
    """Create an environment.

    Args:
        name: a key of `ENVIRONMENTS`, or the `package.module:Class` of any other `TextEnv`.
        options: the constructor's options; options of the environment's splits alone are accepted too.

    Raises:
        UnknownEnvironment: there is no such name, or it does not name an importable `TextEnv`.
        InvalidOption: there is no such option, or its value is invalid.
        EnvironmentFault: as its constructor raises it.
    """
    kind = REGISTRY.find(name)
    return REGISTRY.call(kind, kind, options, owner=kind.name, own=EnvironmentFault)


def splits(name: str, **options: Any) -> Split:
    """Return an environment's training and held-out tasks.

    Takes the same names and options as `make`, and raises the same errors. Also raises `UnknownTask` if the
    environment has no split, and `EnvironmentFault` if it returns something else.
    """
    kind = REGISTRY.find(name)
    split = REGISTRY.call(kind, kind.splits, options, owner=kind.name, own=Exception)
    if not isinstance(split, Split):
        raise EnvironmentFault(f"{kind.name}: splits must return Split, and returned {format_value(split)}")
    return split
