"""Environments by name, imported only when they are made."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from envs.base import InvalidOption, Split, TextEnv, UnknownEnvironment
from envs.plugins import checked_options, imported, require_options
from envs.signatures import shown

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
    """
    kind = _resolve(name)
    return kind(**_select(_constructor_options(kind), _checked(kind, options)))


def splits(name: str, **options: Any) -> Split:
    """Return an environment's training and held-out tasks.

    Takes the same names and options as `make`, and raises the same errors; `UnknownTask` where the
    environment offers no split.
    """
    kind = _resolve(name)
    return kind.splits(**_select(_split_options(kind), _checked(kind, options)))


def options(name: str) -> dict[str, Any]:
    """Return the options that `make` and `splits` take for an environment, with their defaults.

    Raises:
        UnknownEnvironment: as for `make`.
    """
    return {option: parameter.default for option, parameter in _all_options(_resolve(name)).items()}


def memory_mb(name: str) -> int:
    """Return what a process with one instance takes, in megabytes; see `TextEnv.memory_mb`.

    Raises:
        UnknownEnvironment: as for `make`.
    """
    return _resolve(name).memory_mb


def _resolve(name: str) -> type[TextEnv]:
    try:
        found = imported(name, ENVIRONMENTS)
        if not (isinstance(found, type) and issubclass(found, TextEnv)):
            raise ValueError(f"{ENVIRONMENTS.get(name, name)} is no subclass of envs.TextEnv")
        if missing := ", ".join(sorted(found.__abstractmethods__)):
            raise ValueError(f"{found.__name__} is abstract: it does not define {missing}")
        require_options(_all_options(found))
    except KeyError:
        known = ", ".join(ENVIRONMENTS)
        raise UnknownEnvironment(
            f"no environment {shown(name)}; there are {known}, or give package.module:Class"
        ) from None
    except ValueError as error:
        raise UnknownEnvironment(f"environment {shown(name)}: {error}") from error
    return found


def _constructor_options(kind: type[TextEnv]) -> Mapping[str, inspect.Parameter]:
    return _named(inspect.signature(kind, eval_str=True))


def _split_options(kind: type[TextEnv]) -> Mapping[str, inspect.Parameter]:
    return _named(inspect.signature(kind.splits, eval_str=True))


def _all_options(kind: type[TextEnv]) -> Mapping[str, inspect.Parameter]:
    return {**_split_options(kind), **_constructor_options(kind)}


def _named(signature: inspect.Signature) -> Mapping[str, inspect.Parameter]:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: each for name, each in signature.parameters.items() if each.kind not in variadic}


def _select(accepted: Mapping[str, inspect.Parameter], options: Mapping[str, Any]) -> dict[str, Any]:
    return {option: value for option, value in options.items() if option in accepted}


def _checked(kind: type[TextEnv], options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return checked_options(kind.name, options, _all_options(kind))
    except ValueError as error:
        raise InvalidOption(str(error)) from None
