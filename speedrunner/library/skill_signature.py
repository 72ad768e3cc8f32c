"""A skill's signature, rebuilt from its syntax tree with real types and defaults."""

from __future__ import annotations

import ast
import inspect
from typing import Any, Protocol

import msgspec

from envs.signatures import converted
from speedrunner.library.skill_types import SUPPORTED, Types, UnsupportedType, is_literal
from speedrunner.library.source_text import SourceText

SHOWN_CHARS = 80
"""Characters of a type or a default in an error's text."""


class Report(Protocol):
    """Takes a problem and where it is."""

    def __call__(self, where: ast.expr | ast.arg, text: str) -> None:
        """Note it."""


def read_signature(
    function: ast.FunctionDef, types: Types, text: SourceText, report: Report
) -> inspect.Signature:
    """Return a function's parameters; what a tool cannot have is reported.

    Args:
        text: where the function stands.
    """
    given = function.args
    for variadic in (given.vararg, given.kwarg):
        if variadic is not None:
            report(variadic, f"variable arguments are not allowed; name each ({variadic.arg})")
    for positional in given.posonlyargs:
        report(positional, f"{positional.arg} must be passable by name; remove the /")
    ordinary = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(ordinary) - len(given.defaults)), *given.defaults]
    kinds = inspect.Parameter
    parameters: list[tuple[ast.arg, ast.expr | None, Any]] = [
        (each, default, kinds.POSITIONAL_OR_KEYWORD) for each, default in zip(ordinary, defaults, strict=True)
    ]
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        parameters.append((each, default, kinds.KEYWORD_ONLY))
    return inspect.Signature([_parameter(*each, types, text, report) for each in parameters])


def _parameter(
    given: ast.arg, default: ast.expr | None, kind: Any, types: Types, text: SourceText, report: Report
) -> inspect.Parameter:
    annotation: Any = inspect.Parameter.empty
    value: Any = inspect.Parameter.empty
    if given.annotation is None:
        report(given, f"the parameter {given.arg} needs a type: {SUPPORTED} are allowed")
    else:
        try:
            annotation = types.of(given.annotation)
        except UnsupportedType as error:
            why = f" ({error})" if str(error) else ""
            written = _shortened(text.of(given.annotation))
            report(given, f"the parameter {given.arg} cannot be {written}{why}: {SUPPORTED} are allowed")
    if default is not None:
        value = None
        if not is_literal(default):
            report(default, f"the default of {given.arg} must be a literal value")
        elif not _fits(value := ast.literal_eval(default), annotation):
            written = _shortened(text.of(default))
            report(default, f"the default of {given.arg} cannot be {written}: use its type or None")
    return inspect.Parameter(given.arg, kind, default=value, annotation=annotation)


def _shortened(written: str) -> str:
    words = " ".join(written.split())
    return words if len(words) <= SHOWN_CHARS else f"{words[:SHOWN_CHARS]}..."


def _fits(default: object, annotation: Any) -> bool:
    """Tell whether a default can stand in a tool's JSON schema."""
    try:
        if default is None or msgspec.json.decode(msgspec.json.encode(default)) != default:
            return default is None
        converted(default, annotation)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return False
    return True
