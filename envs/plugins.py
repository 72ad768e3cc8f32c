"""Classes that are named by a path and made from keyword-only options: environments, and whatever else is
registered so. Errors are `ValueError`s whose text reads on after the name of what was asked for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from envs.signatures import converted, shown

Parameters = Mapping[str, inspect.Parameter]


def imported(name: str, registered: Mapping[str, str]) -> object:
    """Import what `name` stands for.

    Args:
        name: a key of `registered`, or any `package.module:Class`.
        registered: paths by name.

    Raises:
        KeyError: it is neither.
        ValueError: it cannot be imported.
    """
    if not isinstance(name, str):
        raise KeyError(name)
    module_name, _, class_name = registered.get(name, name).partition(":")
    if not (module_name and class_name):
        raise KeyError(name)
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except AttributeError:
        raise ValueError(f"{module_name} has no {class_name}") from None
    except Exception as error:  # importing somebody's module may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"cannot import {module_name} ({reason})") from error


def require_options(parameters: Parameters) -> None:
    """Make sure that every parameter can be an option.

    Raises:
        ValueError: one is not keyword-only, or has no default.
    """
    for parameter in parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise ValueError(f"parameter {parameter.name!r} must be keyword-only and have a default")


def checked_options(whose: str, given: Mapping[str, Any], parameters: Parameters) -> dict[str, Any]:
    """Check options against the parameters that they are for, and convert them to their types.

    Args:
        whose: what has the options, for the error's text.

    Raises:
        ValueError: an option does not exist, or has a value of another type. The text stands by itself.
    """
    checked = {}
    for option, value in given.items():
        if option not in parameters:
            there_are = f"there are {', '.join(parameters)}" if parameters else "it has none"
            raise ValueError(f"{whose} has no option {shown(option)}; {there_are}")
        try:
            checked[option] = converted(value, parameters[option].annotation)
        except ValueError as error:
            raise ValueError(f"option {option!r} of {whose} {error}") from None
    return checked
