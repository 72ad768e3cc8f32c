"""Environments by name, imported only when they are made."""

from __future__ import annotations

from typing import Any

from envs.base import EnvironmentFault, InvalidOption, Split, TextEnv, UnknownEnvironment
from typed.classes import Parameters, call, find, parameters

ENVIRONMENTS = {
    "babyai": "envs.babyai:BabyAI",
    "scienceworld": "envs.scienceworld:ScienceWorld",
    "crafter": "envs.crafter:Crafter",
}
"""Registry name -> `package.module:Class`."""


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
    kind = _resolve(name)
    return call(kind.name, kind, options, _options(kind), InvalidOption, own=EnvironmentFault)


def splits(name: str, **options: Any) -> Split:
    """Return an environment's training and held-out tasks.

    Takes the same names and options as `make`, and raises the same errors; `UnknownTask` where the
    environment offers no split.
    """
    kind = _resolve(name)
    return call(kind.name, kind.splits, options, _options(kind), InvalidOption, own=Exception)


def options(name: str) -> dict[str, Any]:
    """Return the options that `make` and `splits` take for an environment, with their defaults.

    Raises:
        UnknownEnvironment: as for `make`.
    """
    return {option: parameter.default for option, parameter in _options(_resolve(name)).items()}


def memory_mb(name: str) -> int:
    """Return what each instance takes, in megabytes; see `TextEnv.memory_mb`.

    Raises:
        UnknownEnvironment: as for `make`.
    """
    return _resolve(name).memory_mb


def preload(name: str) -> None:
    """Load what an environment's instances can share; see `TextEnv.preload`.

    Raises:
        UnknownEnvironment: as for `make`.
    """
    _resolve(name).preload()


def _resolve(name: str) -> type[TextEnv]:
    return find("environment", name, ENVIRONMENTS, TextEnv, _options, UnknownEnvironment)  # type: ignore[type-abstract]


def _options(kind: type[TextEnv]) -> Parameters:
    return parameters(kind.splits, kind)
