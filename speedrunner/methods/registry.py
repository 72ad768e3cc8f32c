"""Methods by name, imported only when they are made."""

from __future__ import annotations

from typing import Any

from speedrunner.methods.base import Method
from typed.classes import call, find, parameters

METHODS = {
    "react": "speedrunner.methods.react:ReAct",
    "speedrunner": "speedrunner.methods.speedrunner.method:SpeedRunner",
}
"""Name -> `package.module:Class`."""


class UnknownMethod(Exception):
    """No method goes by the name that was given."""


class InvalidMethodOption(Exception):
    """A method was made with an option it does not have, or with a value of the wrong type."""


def make(name: str, **options: Any) -> Method:
    """Make a method.

    Args:
        name: a key of `METHODS`, or the `package.module:Class` of any other `Method`.
        options: its constructor's.

    Raises:
        UnknownMethod: no such name, or what it names is no importable method.
        InvalidMethodOption: no such option, or a value it does not take.
    """
    kind, invalid = _resolve(name), InvalidMethodOption
    return call(f"method {name}", kind, options, parameters(kind), invalid, own=invalid)


def options(name: str) -> dict[str, Any]:
    """The options of a method, with their defaults. Raises `UnknownMethod`."""
    return {option: parameter.default for option, parameter in parameters(_resolve(name)).items()}


def _resolve(name: str) -> type[Method]:
    return find("method", name, METHODS, Method, parameters, UnknownMethod)  # type: ignore[type-abstract]
