"""Values as plain JSON, and the bounds on what a tool call may send and record.

The child follows the bounds to save work. The worker enforces them.
"""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any

NODE_LIMIT = 20_000
"""Recorded calls of one tool call, without those that advance the world."""

DEPTH_LIMIT = 100
"""Levels of recorded calls; deeper calls are recorded under the deepest recorded one."""

VALUE_LIMIT = 1_000_000
"""Characters of one argument or result that is recorded whole; see `VALUE_CHARS`."""

VALUE_CHARS = 20
"""Characters that every value counts in addition to its text, for its work and memory."""

ERROR_CHARS = 1_000
"""Characters of the error line of a piece of code."""

MESSAGE_LIMIT = 2 * 2**20
"""Most bytes of one message of the child."""

TOKEN_LIMIT = 250_000
"""Strings, brackets and commas in one message: as many as `VALUE_LIMIT` allows, and some more."""

NESTING_LIMIT = 100
"""Levels of lists and objects in one message."""

VALUE_DEPTH_LIMIT = 20
"""Maximum nesting of lists and objects in a recorded value."""

DESCRIPTION_LIMIT = 300
"""Characters of the description that replaces a value that is not kept whole."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)


def excess(body: bytes) -> str | None:
    """Return which bound a message exceeds, or `None`. It runs before the message is decoded, since that
    could take long."""
    if len(body) > MESSAGE_LIMIT:
        return f"{len(body)} bytes; {MESSAGE_LIMIT} are allowed"
    if len(body) <= TOKEN_LIMIT and body.count(b"[") + body.count(b"{") <= NESTING_LIMIT:
        return None
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(body)):
        opens = body[token.start()]
        depth += (opens in b"[{") - (opens in b"]}")
        if depth > NESTING_LIMIT:
            return f"values within values on more than {NESTING_LIMIT} levels"
        if count > TOKEN_LIMIT:
            return f"more than {TOKEN_LIMIT} strings, brackets and commas"
    return None


class _TooLarge(Exception):
    pass


def to_json(value: Any, room: int) -> tuple[Any, int]:
    """Return a value as plain JSON, and the characters that it takes, with `VALUE_CHARS` for each value in
    it.

    Values that JSON cannot express (sets, objects, non-finite numbers) become a description of at most
    `DESCRIPTION_LIMIT` characters: of an object its class and fields, without its address. So does a whole
    value that takes more than `room` characters, is nested too deeply, or contains itself. Tuples become
    lists.
    """
    used = 0

    def convert(value: Any, depth: int) -> Any:
        nonlocal used
        if depth > VALUE_DEPTH_LIMIT:
            raise _TooLarge
        used += VALUE_CHARS
        plain: Any
        if (
            value is None
            or isinstance(value, bool)
            or (type(value) is float and math.isfinite(value))
            or (type(value) is int and -(2**63) <= value < 2**63)
        ):
            plain = value
        elif isinstance(value, str):
            used += len(value)
            if used > room:  # before a long text is processed
                raise _TooLarge
            plain = valid_text(value)
        elif isinstance(value, list | tuple):
            plain = []
            for item in value:
                if used > room:  # also stops an iterator that never ends
                    raise _TooLarge
                plain.append(convert(item, depth + 1))
        elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
            used += sum(len(key) for key in value)
            plain = {valid_text(key): convert(item, depth + 1) for key, item in value.items()}
        else:
            plain = _describe(value)
            used += len(plain)
        if used > room:
            raise _TooLarge
        return plain

    try:
        return convert(value, 0), used
    except Exception:  # too large, or a container with broken methods
        plain = _describe(value)
        return plain, len(plain)


def valid_text(text: str) -> str:
    """Return the text with characters that UTF-8 cannot encode (lone surrogates) as escapes."""
    return str.encode(text, errors="backslashreplace").decode()


class _Description(reprlib.Repr):
    """Describes values; an object without an own `__repr__` by its class and its fields."""

    def repr_instance(self, x: Any, level: int) -> str:
        """Return the description of an object."""
        if getattr(type(x), "__repr__", None) is not object.__repr__:
            return super().repr_instance(x, level)
        named = vars(x).items() if level > 0 and hasattr(x, "__dict__") else ()
        fields = ", ".join(f"{name}={self.repr1(value, level - 1)}" for name, value in named)
        return f"{type(x).__name__}({fields})"


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_description = _Description()
_description.maxlevel = 2
_description.maxstring = _description.maxother = DESCRIPTION_LIMIT


def _describe(value: Any) -> str:
    try:
        return valid_text(_ADDRESS.sub("", _description.repr(value))[:DESCRIPTION_LIMIT])
    except Exception as error:
        return f"<{type(value).__name__} whose repr failed: {type(error).__name__}>"
