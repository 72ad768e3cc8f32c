"""Methods by name, imported only when they are made."""

from __future__ import annotations

import inspect
from typing import Any, cast

from envs.plugins import checked_options, imported, require_options
from speedrunner.methods.base import Method

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
    kind = _resolve(name)
    try:
        checked = checked_options(f"method {name}", options, _parameters(kind))
    except ValueError as error:
        raise InvalidMethodOption(str(error)) from None
    return cast(Method, kind(**checked))


def options(name: str) -> dict[str, Any]:
    """The options of a method, with their defaults. Raises `UnknownMethod`."""
    return {option: parameter.default for option, parameter in _parameters(_resolve(name)).items()}


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(kind, eval_str=True).parameters)


def _resolve(name: str) -> type:
    try:
        found = imported(name, METHODS)
        if not (isinstance(found, type) and issubclass(found, Method)):
            base = f"{Method.__module__}.{Method.__name__}"
            raise ValueError(f"{METHODS.get(name, name)} is no method: it does not extend {base}")
        if lacks := ", ".join(sorted(found.__abstractmethods__)):
            raise ValueError(f"{METHODS.get(name, name)} is no method: it lacks {lacks}")
        require_options(_parameters(found))
    except KeyError:
        known = ", ".join(METHODS)
        raise UnknownMethod(f"no method {name!r}; there are {known}, or give package.module:Class") from None
    except ValueError as error:
        raise UnknownMethod(f"method {name!r}: {error}") from error
    return found
