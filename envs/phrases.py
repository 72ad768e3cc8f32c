"""Primitives that are sentences for a simulator's parser, and the text that may go into them."""

from __future__ import annotations

import inspect
import string
from dataclasses import dataclass
from typing import Any, Literal

from envs.text_env import InvalidPrimitiveCall

MAX_ARGUMENT_CHARS = 200
"""More than any name that a simulator gives to an object."""

ANNOTATIONS: dict[str, Any] = {"option": int, "direction": Literal["north", "south", "east", "west"]}
"""Types of arguments that are not free text, by name."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """The parser's words for a primitive.

    Attributes:
        words: the words, with the arguments in order as `{name}`.
        doc: the primitive's documentation.
        then: words that follow if the argument in them is given.
    """

    words: str
    doc: str
    then: str = ""

    @property
    def signature(self) -> inspect.Signature:
        """The primitive's signature: an argument is text, unless `ANNOTATIONS` has its name."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(name, kind, default=default, annotation=ANNOTATIONS.get(name, str))
            for words, default in ((self.words, inspect.Parameter.empty), (self.then, ""))
            for name in _arguments(words)
        ]
        return inspect.Signature(parameters, return_annotation=str)

    def __call__(self, **arguments: str | int) -> str:
        """Return the primitive's call as the parser reads it."""
        words = self.words + self.then * any(arguments.get(name) for name in _arguments(self.then))
        return words.format(**arguments)


def _arguments(words: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(words) if name is not None]


def check_text(name: str, parameter: str, value: str) -> None:
    """Accept one line of printable text as an argument of a primitive.

    Raises `InvalidPrimitiveCall`: the text is empty, too long, or has control characters.
    """
    if not value.strip():
        raise InvalidPrimitiveCall(f"{name}: {parameter} is empty; give a name as the observations do")
    if len(value) > MAX_ARGUMENT_CHARS:
        raise InvalidPrimitiveCall(
            f"{name}: {parameter} has {len(value):,} characters; {MAX_ARGUMENT_CHARS} are allowed"
        )
    if not value.isprintable():
        raise InvalidPrimitiveCall(f"{name}: {parameter} must be one line without control characters")
