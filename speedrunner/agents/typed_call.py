"""A tool call that someone typed: a person in a terminal, or a client that acts in text."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import Parameter, Signature
from typing import Any

import msgspec

from envs import TextEnv
from envs.option_values import format_value
from serving.tokens.tools import ToolCall
from speedrunner.agents.actor import SUBMIT_ANSWER

FORMS = "NAME, NAME WORDS or NAME(PARAMETER=VALUE, ...)"
"""The ways to type a call."""

SHOWN_CHARS = 100
"""Maximum characters shown of a syntax error."""


class UnreadableLine(Exception):
    """A typed line is not a call."""


def read_call(line: str, signatures: Mapping[str, Signature]) -> ToolCall:
    """Return the call that someone typed.

    Args:
        line: `name`, `name words`, or a call in Python with literals. Words are assigned to the parameters in
            order, separated by commas.
        signatures: the signatures of the tools, by name. A tool without one gets no arguments.

    Raises `UnreadableLine`, which says how to write the call.
    """
    found = re.fullmatch(r"(\w+)\s*(.*)", line, re.DOTALL)
    if found is None:
        raise UnreadableLine(f"{format_value(line)} does not begin with a name. Type {FORMS}")
    name, rest = found.groups()
    if name not in signatures or not rest:
        return ToolCall(name, {})
    signature = signatures[name]
    parameters = list(signature.parameters.values())
    if rest.startswith("("):
        return ToolCall(name, _literals(name, rest, signature))
    words = [each.strip() for each in rest.split(",", len(parameters) - 1)] if parameters else [rest]
    if len(words) > len(parameters):
        raise UnreadableLine(f"{name} takes nothing, but was given {format_value(rest)}")
    given = zip(parameters, words, strict=False)
    return ToolCall(name, {parameter.name: _from_word(parameter, word) for parameter, word in given})


def _literals(name: str, rest: str, signature: Signature) -> dict[str, Any]:
    """Return the arguments of a call in Python's syntax. Raises `UnreadableLine`."""
    try:
        tree = ast.parse(f"{name}{rest}", mode="eval").body
        if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
            raise ValueError("no call")
        positional = [ast.literal_eval(each) for each in tree.args]
        by_name = {str(each.arg): ast.literal_eval(each.value) for each in tree.keywords}
        return dict(signature.bind(*positional, **by_name).arguments)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UnreadableLine(
            f"cannot read {format_value(name + rest)}: write texts in quotes, as in {name}(...='...')"
        ) from None
    except TypeError as error:
        raise UnreadableLine(f"{name}{signature}: {textwrap.shorten(str(error), SHOWN_CHARS)}") from None


def _from_word(parameter: Parameter, word: str) -> Any:
    """Return a word as the parameter's type, or unchanged, which the environment then refuses."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(word, parameter.annotation, strict=False)
    return word


def describe_tools(env: TextEnv) -> Iterator[str]:
    """Yield a line for each primitive, and one for `submit_answer` if the environment wants it."""
    for each in env.primitives:
        signature = each.signature.replace(return_annotation=Signature.empty)
        yield f"{each.name}{signature}: {each.doc}"
    if env.submits:
        yield f"{SUBMIT_ANSWER.name}(): {SUBMIT_ANSWER.doc}"
