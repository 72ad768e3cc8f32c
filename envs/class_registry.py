"""Classes that are chosen by a registered name or by `package.module:Class`, and created from keyword-only
options. Every error has a class that the registry names, and a text that is complete by itself."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import Any, Generic, TypeVar

from speedrunner.plain.plain_records import convert_value, format_value, suggest

T = TypeVar("T")
Made = TypeVar("Made")

Parameters = Mapping[str, inspect.Parameter]


def in_one_line(error: BaseException) -> str:
    """Return the class of an error and the first line of its text."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def place(error: BaseException) -> str:
    """Return where an error was raised: `my_world.py, line 12, in call`."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}, in {frames[-1].name}"


@cache
def parameters(*functions: Callable[..., Any]) -> Parameters:
    """Return the parameters of functions by name, without * and **; if several have the same name, the last
    one's."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter
        for function in functions
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items()
        if parameter.kind not in variadic
    }


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Classes of one kind by name, created from options.

    Attributes:
        what: the kind, such as `environment`.
        registered: paths, `package.module:Class`, by name.
        base: the class that each must extend, with all abstract methods.
        unknown: the error for an unknown name.
        invalid: the error for options that a class does not take.
        options_of: returns the options of a class.
    """

    what: str
    registered: Mapping[str, str]
    base: type[T]
    unknown: type[Exception]
    invalid: type[Exception]
    options_of: Callable[[type[T]], Parameters] = parameters  # type: ignore[assignment]  # it is cached

    def find(self, name: object) -> type[T]:
        """Import the class of a registered name, or of any `package.module:Class`.

        Raises:
            unknown: no class has this name; it cannot be imported, is of another kind, or cannot be created
                from options.
        """
        base, called = self.base, f"{self.what} {format_value(name)}"
        path = self.registered.get(name, name) if isinstance(name, str) else ""
        module, _, attribute = path.partition(":")
        if not (module and attribute):
            known = ", ".join(self.registered)
            raise self.unknown(f"unknown {called}; known: {known}, or package.module:Class")
        if path not in self.registered.values() and (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # for a user's own class; processes that play inherit it
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except Exception as problem:  # a user's module may raise anything
            # A SyntaxError's text has the place.
            where = "" if isinstance(problem, SyntaxError) else f"; {place(problem)}"
            reason = f"cannot import {module} ({in_one_line(problem)}{where})"
            if isinstance(problem, ModuleNotFoundError) and f"{module}.".startswith(f"{problem.name}."):
                reason = (
                    f"cannot import {module}: module {problem.name!r} is neither in the current"
                    f" directory, {Path.cwd()}, nor installed; change to the directory that contains"
                    " it, or add that to PYTHONPATH"
                )
            elif isinstance(problem, AttributeError) and problem.name == attribute:
                reason = f"{module} has no {attribute}"
            raise self.unknown(f"{called}: {reason}") from problem
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise self.unknown(f"{called}: it must extend {base.__module__}.{base.__name__}")
        if missing := ", ".join(sorted(getattr(kind, "__abstractmethods__", ()))):
            raise self.unknown(f"{called}: it must define {missing}")
        for option in self.options_of(kind).values():
            if option.kind is not option.KEYWORD_ONLY or option.default is option.empty:
                raise self.unknown(
                    f"{called}: parameter {option.name!r} must be keyword-only and have a default"
                )
        return kind

    def call(
        self,
        kind: type[T],
        function: Callable[..., Made],
        given: Mapping[str, Any],
        *,
        owner: str,
        own: type[Exception],
    ) -> Made:
        """Call a class, or a function of it, with those options that it takes.

        Args:
            given: options, which are converted to their types.
            owner: name of what has the options, for the errors.

        Raises:
            invalid: an option is unknown or has a value of another type; or the call raised an error other
                than `own`.
            own: as the call raised it.
        """
        options, checked = self.options_of(kind), {}
        for option, value in given.items():
            if option not in options:
                hint = f"; its options: {', '.join(options)}" if options else "; it has none"
                hint = suggest(option, options) or hint
                raise self.invalid(f"{owner} has no option {format_value(option)}{hint}")
            try:
                checked[option] = convert_value(value, options[option].annotation)
            except ValueError as problem:
                raise self.invalid(f"option {option!r} of {owner} {problem}") from None
        taken = inspect.signature(function).parameters
        try:
            return function(**{option: value for option, value in checked.items() if option in taken})
        except own:
            raise
        except Exception as problem:  # from a user's class
            raise self.invalid(
                f"{owner} cannot be created: {in_one_line(problem)} ({place(problem)})"
            ) from problem
