"""Methods by name, imported only when they are made."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, cast

from envs.signatures import converted
from speedrunner.methods.base import Method

METHODS = {
    "react": "speedrunner.methods.react:ReAct",
    "speedrunner": "speedrunner.methods.speedrunner:SpeedRunner",
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
    allowed = _parameters(kind)
    checked = {}
    for option, value in options.items():
        if option not in allowed:
            there_are = f"there are {', '.join(allowed)}" if allowed else "it has none"
            raise InvalidMethodOption(f"method {name} has no option {option!r}; {there_are}")
        try:
            checked[option] = converted(value, allowed[option].annotation)
        except ValueError as error:
            raise InvalidMethodOption(f"option {option!r} of method {name} {error}") from None
    return cast(Method, kind(**checked))


def options(name: str) -> dict[str, Any]:
    """The options of a method, with their defaults. Raises `UnknownMethod`."""
    return {option: parameter.default for option, parameter in _parameters(_resolve(name)).items()}


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(kind, eval_str=True).parameters)


def _resolve(name: str) -> type:
    path = METHODS.get(name, name)
    module_name, _, class_name = path.partition(":")
    if not (module_name and class_name):
        known = ", ".join(METHODS)
        raise UnknownMethod(f"no method {name!r}; there are {known}, or give package.module:Class")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except AttributeError:
        raise UnknownMethod(f"method {name!r}: {module_name} has no {class_name}") from None
    except Exception as error:  # importing somebody's module may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UnknownMethod(f"method {name!r}: cannot import {module_name} ({reason})") from error
    missing = [part for part in ("initial", "agent", "sleep") if not callable(getattr(found, part, None))]
    if not isinstance(found, type) or missing:
        lacks = ", ".join(missing) or "a class"
        raise UnknownMethod(f"method {name!r}: {path} is no method: it lacks {lacks}")
    for parameter in _parameters(found).values():
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise UnknownMethod(
                f"method {name!r}: parameter {parameter.name!r} must be keyword-only and have a default"
            )
    return found
