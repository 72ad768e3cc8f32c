"""Classes that are named by a registered name or by `package.module:Class`, and made from keyword-only
options. Every error is of a class that the registry names, and its text stands by itself."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from typed.errors import in_one_line, place
from typed.values import converted, shown, suggest

T = TypeVar("T")
Made = TypeVar("Made")

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


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Classes of one kind by name, which are made from options.

    Attributes:
        what: what they are, such as `environment`.
        registered: their paths, `package.module:Class`, by name.
        base: what each must extend, with all that is abstract there.
        unknown: the error for a name that stands for none of them.
        invalid: the error for options that one does not take.
        options_of: the options of one.
    """

    what: str
    registered: Mapping[str, str]
    base: type[T]
    unknown: type[Exception]
    invalid: type[Exception]
    options_of: Callable[[type[T]], Parameters] = parameters

    def find(self, name: object) -> type[T]:
        """Import the class that a registered name, or any `package.module:Class`, stands for.

        Raises:
            unknown: no such name; it cannot be imported, is none of its kind, or cannot be made from options.
        """
        base, called = self.base, f"{self.what} {shown(name)}"
        path = self.registered.get(name, name) if isinstance(name, str) else ""
        module, _, attribute = path.partition(":")
        if not (module and attribute):
            known = ", ".join(self.registered)
            raise self.unknown(f"no {called}; there are {known}, or give package.module:Class")
        if path not in self.registered.values() and (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # where somebody's own class lies; processes that play inherit it
        try:
            found = getattr(importlib.import_module(module), attribute)
        except Exception as problem:  # importing somebody's module may raise anything
            where = "" if isinstance(problem, SyntaxError) else f"; {place(problem)}"  # its text has it
            reason = f"cannot import {module} ({in_one_line(problem)}{where})"
            if isinstance(problem, ModuleNotFoundError) and f"{module}.".startswith(f"{problem.name}."):
                reason = (
                    f"cannot import {module}: there is no module {problem.name!r} in the current directory,"
                    f" {Path.cwd()}, nor among the installed packages; change to the directory that"
                    " holds it, or name that in PYTHONPATH"
                )
            elif isinstance(problem, AttributeError) and problem.name == attribute:
                reason = f"{module} has no {attribute}"
            raise self.unknown(f"{called}: {reason}") from problem
        if not (isinstance(found, type) and issubclass(found, base)):
            raise self.unknown(f"{called}: it does not extend {base.__module__}.{base.__name__}")
        if missing := ", ".join(sorted(getattr(found, "__abstractmethods__", ()))):
            raise self.unknown(f"{called}: it is abstract and lacks {missing}")
        for option in self.options_of(found).values():
            if option.kind is not option.KEYWORD_ONLY or option.default is option.empty:
                raise self.unknown(
                    f"{called}: parameter {option.name!r} must be keyword-only and have a default"
                )
        return found

    def call(
        self,
        kind: type[T],
        function: Callable[..., Made],
        given: Mapping[str, Any],
        *,
        whose: str,
        own: type[Exception],
    ) -> Made:
        """Call a class, or a function of it, with those of its options that this one takes.

        Args:
            given: options, which are converted to their types.
            whose: what has the options, for the errors.

        Raises:
            invalid: no such option, or a value of another type; or the call raised what is not `own`.
            own: as the call raised it.
        """
        options, checked = self.options_of(kind), {}
        for option, value in given.items():
            if option not in options:
                there_are = f"there are {', '.join(options)}" if options else "it has none"
                near = suggest(option, options)
                raise self.invalid(f"{whose} has no option {shown(option)}{near}; {there_are}")
            try:
                checked[option] = converted(value, options[option].annotation)
            except ValueError as problem:
                raise self.invalid(f"option {option!r} of {whose} {problem}") from None
        taken = inspect.signature(function).parameters
        try:
            return function(**{option: value for option, value in checked.items() if option in taken})
        except own:
            raise
        except Exception as problem:  # of somebody's
            raise self.invalid(
                f"{whose} cannot be made: {in_one_line(problem)} ({place(problem, kind)})"
            ) from problem
