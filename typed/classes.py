"""Classes that are named by a registered name or by `package.module:Class`, and made from keyword-only
options. Every error is of the caller's own class, and its text stands by itself."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from typed.values import converted, shown, suggest

T = TypeVar("T")

Parameters = Mapping[str, inspect.Parameter]


def parameters(*functions: Callable[..., Any]) -> Parameters:
    """The parameters of functions by name, without * and **; where several have one, the last one's."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: each
        for function in functions
        for name, each in inspect.signature(function, eval_str=True).parameters.items()
        if each.kind not in variadic
    }


def find(
    what: str,
    name: object,
    registered: Mapping[str, str],
    base: type[T],
    options_of: Callable[[type[T]], Parameters],
    error: type[Exception],
) -> type[T]:
    """Import the class that a name stands for.

    Args:
        what: what it is to be, such as `environment`.
        name: a key of `registered`, or any `package.module:Class`.
        registered: paths by name.
        base: what it must extend, with all that is abstract there.
        options_of: its options.

    Raises:
        error: no such name; it cannot be imported, is none of its kind, or cannot be made from options.
    """
    path = registered.get(name, name) if isinstance(name, str) else ""
    module, _, attribute = path.partition(":")
    if not (module and attribute):
        known = ", ".join(registered)
        raise error(f"no {what} {shown(name)}; there are {known}, or give package.module:Class")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as problem:  # importing somebody's module may raise anything
        reason = f"cannot import {module} ({_first_line(problem)})"
        if isinstance(problem, AttributeError) and problem.name == attribute:
            reason = f"{module} has no {attribute}"
        raise error(f"{what} {shown(name)}: {reason}") from problem
    if not (isinstance(found, type) and issubclass(found, base)):
        raise error(f"{what} {shown(name)}: it does not extend {base.__module__}.{base.__name__}")
    if missing := ", ".join(sorted(getattr(found, "__abstractmethods__", ()))):
        raise error(f"{what} {shown(name)}: it is abstract and lacks {missing}")
    for option in options_of(found).values():
        if option.kind is not option.KEYWORD_ONLY or option.default is option.empty:
            raise error(
                f"{what} {shown(name)}: parameter {option.name!r} must be keyword-only and have a default"
            )
    return found


def call(
    whose: str,
    function: Callable[..., T],
    given: Mapping[str, Any],
    options: Parameters,
    error: type[Exception],
    own: type[Exception],
) -> T:
    """Call a constructor of somebody's, or another function, with those of the options that it takes.

    Args:
        whose: what has the options, for the errors.
        given: options, which are converted to their types.
        options: all that there are; `function` need not take each of them.

    Raises:
        error: an option does not exist or has a value of another type, or the call raised what is not `own`.
        own: as the call raised it.
    """
    checked = {}
    for option, value in given.items():
        if option not in options:
            there_are = f"there are {', '.join(options)}" if options else "it has none"
            raise error(f"{whose} has no option {shown(option)}{suggest(option, options)}; {there_are}")
        try:
            checked[option] = converted(value, options[option].annotation)
        except ValueError as problem:
            raise error(f"option {option!r} of {whose} {problem}") from None
    taken = inspect.signature(function).parameters
    try:
        return function(**{option: value for option, value in checked.items() if option in taken})
    except own:
        raise
    except Exception as problem:  # of somebody's
        raise error(f"{whose} cannot be made: {_first_line(problem)}") from problem


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
