"""Environments by name, imported only when they are made."""

from __future__ import annotations

from typing import Any

from envs.base import EnvironmentFault, InvalidOption, Split, TextEnv, UnknownEnvironment
from typed.classes import Registry, parameters
from typed.values import shown

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
    """Make an environment.

    Args:
        name: a key of `ENVIRONMENTS`, or the `package.module:Class` of any other `TextEnv`.
        options: the constructor's; those that only the environment's splits have are accepted too.

    Raises:
        UnknownEnvironment: no such name, or what it names is no importable `TextEnv`.
        InvalidOption: no such option, or a value it does not take.
        EnvironmentFault: as its constructor raises it.
    """
    kind = REGISTRY.find(name)
    return REGISTRY.call(kind, kind, options, whose=kind.name, own=EnvironmentFault)


def splits(name: str, **options: Any) -> Split:
    """Return an environment's training and held-out tasks.

    Takes the same names and options as `make`, and raises the same errors; `UnknownTask` where the
    environment offers no split, `EnvironmentFault` where it returns something else.
    """
    kind = REGISTRY.find(name)
    found = REGISTRY.call(kind, kind.splits, options, whose=kind.name, own=Exception)
    if not isinstance(found, Split):
        raise EnvironmentFault(f"{kind.name}: splits must return Split, and returned {shown(found)}")
    return found
