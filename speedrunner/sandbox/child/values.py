"""Python values as plain JSON, whatever they are."""

from __future__ import annotations

import math
import reprlib
from typing import Any

from .bounds import VALUE_CHARS

VALUE_DEPTH_LIMIT = 20
"""Levels of lists and objects in a recorded value."""

DESCRIPTION_LIMIT = 300
"""Characters that stand for a value which is not kept whole."""


class _TooLarge(Exception):
    pass


def to_json(value: Any, room: int) -> tuple[Any, int]:
    """Return a value as plain JSON, and the characters that it takes, `VALUE_CHARS` for each value in it.

    What JSON cannot say (sets, objects, non-finite numbers) becomes a description of at most
    `DESCRIPTION_LIMIT` characters, and so does a whole value that takes more than `room` characters, is
    nested too deeply, or contains itself. Tuples become lists.
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
            if used > room:  # before a long text is looked at
                raise _TooLarge
            plain = valid_text(value)
        elif isinstance(value, list | tuple):
            plain = []
            for each in value:
                if used > room:  # also of something that yields for ever
                    raise _TooLarge
                plain.append(convert(each, depth + 1))
        elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
            used += sum(len(key) for key in value)
            plain = {valid_text(key): convert(each, depth + 1) for key, each in value.items()}
        else:
            plain = _described(value)
            used += len(plain)
        if used > room:
            raise _TooLarge
        return plain

    try:
        return convert(value, 0), used
    except Exception:  # too large, or a container whose methods do not behave
        plain = _described(value)
        return plain, len(plain)


def valid_text(text: str) -> str:
    """Return the text with what UTF-8 cannot say (lone surrogates) written out."""
    return str.encode(text, errors="backslashreplace").decode()


_description = reprlib.Repr()
_description.maxlevel = 2
_description.maxstring = _description.maxother = DESCRIPTION_LIMIT


def _described(value: Any) -> str:
    try:
        return valid_text(_description.repr(value)[:DESCRIPTION_LIMIT])
    except Exception as error:
        return f"<{type(value).__name__} whose repr failed: {type(error).__name__}>"
