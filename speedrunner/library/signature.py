"""Read a skill's signature with real types and defaults from its syntax tree, without running it."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Mapping
from typing import Any, Literal

from serving.errors import InvalidTool
from serving.tokens.tools import ToolSpec
from speedrunner.library.definition import text_of
from speedrunner.library.rules import SHOWN_CHARS, Problem

SUPPORTED = "str, int, float, bool, Literal[...], list[...]"
"""Types of parameters; `serving.tokens.tools` makes a JSON schema of each."""

_SCALARS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


class Untold(str):
    """The text of an annotation that is not allowed for a tool's parameter."""

    __repr__ = str.__str__


def _type(annotation: ast.expr) -> Any:
    """Return the type of an annotation. Raises `InvalidTool`, without a text if it is no supported type."""
    match annotation:
        case ast.Name(id=name) if name in _SCALARS:
            return _SCALARS[name]
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return types.GenericAlias(list, (_type(item),))
        case ast.Subscript(
            value=ast.Name(id="Literal") | ast.Attribute(value=ast.Name(id="typing"), attr="Literal"),
            slice=values,
        ) if is_literal(values) and (options := ast.literal_eval(values)) != ():
            return Literal[options]
    raise InvalidTool


def read_signature(
    given: ast.arguments, lines: list[str], *, is_tool: bool
) -> tuple[inspect.Signature, list[Problem]]:
    """Return a function's parameters and their problems.

    Args:
        lines: the function's text.
        is_tool: whether the actor is to call it, so that each parameter needs a type allowed for tools.
    """
    problems: list[Problem] = []

    def report(where: ast.arg | ast.expr, text: str) -> None:
        problems.append(Problem(where.lineno, text))

    for variadic in filter(None, (given.vararg, given.kwarg)):
        report(variadic, f"variable arguments are not allowed; name each ({variadic.arg})")
    for positional in given.posonlyargs:
        report(positional, f"{positional.arg} must be passable by name; remove the /")
    ordinary = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(ordinary) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    parameters = []
    for argument, default in zip([*ordinary, *given.kwonlyargs], defaults, strict=True):
        parameter = inspect.Parameter(argument.arg, inspect.Parameter.KEYWORD_ONLY)
        if argument in ordinary:
            parameter = parameter.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if argument.annotation is None:
            if is_tool:
                advice = "or start the name of a helper with _"
                report(argument, f"give {argument.arg} a type ({SUPPORTED}), {advice}")
        else:
            try:
                parameter = parameter.replace(annotation=_type(argument.annotation))
                _tool(parameter.annotation, None)
            except InvalidTool as error:
                parameter = parameter.replace(annotation=Untold(_shorten(argument.annotation, lines)))
                reason = str(error).partition(": ")[2].partition(";")[0]
                why = f"{parameter.annotation} ({reason})" if reason else parameter.annotation
                if is_tool:
                    report(argument, f"the parameter {argument.arg} cannot be {why}: {SUPPORTED} are allowed")
        if default is not None:
            value = ast.literal_eval(default) if is_literal(default) else None
            parameter = parameter.replace(default=value)
            if not is_literal(default):
                report(default, f"the default of {argument.arg} must be a literal value")
            elif not _fits(parameter):
                written = _shorten(default, lines)
                report(default, f"the default of {argument.arg} cannot be {written}: use its type or None")
        parameters.append(parameter)
    return inspect.Signature(parameters), problems


def is_literal(node: ast.expr | None) -> bool:
    """Return whether an expression is a constant that can be written as text."""
    try:
        ast.literal_eval(node or "")
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return False
    constants = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant)) if node else ()
    return all(is_text(value) for value in constants if isinstance(value, str))


def is_text(value: str) -> bool:
    """Return whether the text can be encoded: lone surrogates cannot."""
    return value.encode(errors="ignore").decode() == value


def _tool(annotation: Any, default: Any) -> ToolSpec:
    """Return a tool with one parameter. Raises `InvalidTool` if the annotation or default is not allowed."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameter = inspect.Parameter("it", kind, default=default, annotation=annotation)
    return ToolSpec.from_signature("", inspect.Signature([parameter]), "")


def _fits(parameter: inspect.Parameter) -> bool:
    """Return whether a default is allowed in a tool's JSON schema; without a type, any default is."""
    annotation = parameter.annotation
    if parameter.default is None or annotation is parameter.empty or isinstance(annotation, Untold):
        return True
    tool = _tool(annotation, parameter.default)
    expressed = "default" in tool.parameters["properties"]["it"]
    return expressed and tool.problem_with({"it": parameter.default}) is None


def _shorten(node: ast.expr, lines: list[str]) -> str:
    words = " ".join(text_of(node, lines).split())
    return words if len(words) <= SHOWN_CHARS else f"{words[:SHOWN_CHARS]}..."
