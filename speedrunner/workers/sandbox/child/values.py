"""Any Python value as plain JSON."""

from __future__ import annotations

import math
import reprlib
from typing import Any

from .bounds import VALUE_CHARS

VALUE_DEPTH_LIMIT = 20
"""Maximum nesting of lists and objects in a recorded value."""

DESCRIPTION_LIMIT = 300
"""Characters of the description that replaces a value that is not kept whole."""


class _TooLarge(Exception):
    pass


def to_json(value: Any, room: int) -> tuple[Any, int]:
    """Return a value as plain JSON, and the characters that it takes, with `VALUE_CHARS` for each value in
    it.

    Values that JSON cannot express (sets, objects, non-finite numbers) become a description of at most
    `DESCRIPTION_LIMIT` characters. So does a whole value that takes more than `room` characters, is nested
    too deeply, or contains itself. Tuples become lists.
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
            for each in value:
                if used > room:  # also stops an iterator that never ends
                    raise _TooLarge
                plain.append(convert(each, depth + 1))
        elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
            used += sum(len(key) for key in value)
            plain = {valid_text(key): convert(each, depth + 1) for key, each in value.items()}
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


_description = reprlib.Repr()
_description.maxlevel = 2
_description.maxstring = _description.maxother = DESCRIPTION_LIMIT


def _describe(value: Any) -> str:
    try:
        return valid_text(_description.repr(value)[:DESCRIPTION_LIMIT])
    except Exception as error:
        return f"<{type(value).__name__} whose repr failed: {type(error).__name__}>"
