"""Limits of a library, and error messages for its author."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

ALLOWED_MODULES = (
    *("collections", "copy", "dataclasses", "enum", "functools", "heapq", "itertools", "json", "math"),
    *("operator", "random", "re", "statistics", "string", "typing"),
)
"""Modules that skills may import."""

MODULE_BYTES = 1_250_000
"""Maximum bytes of a skill library: 1,700 skills of 735 bytes each."""

SOURCE_LIMIT = 20_000
"""Maximum characters of the source of one edit, and therefore of each function and each constant."""

NAME_LIMIT = 64
"""Maximum characters of a skill's name; model tool formats allow no more."""

DEPTH_LIMIT = 300
"""Maximum levels of nested code. Python's own limit is ten times as high and varies by construct."""

SHOWN_CHARS = 80
"""Maximum characters of a type, a default or a line in an error message."""

SHOWN_PROBLEMS = 20
"""Maximum problems of one edit in an error message."""

SHOWN_NAMES = 50
"""Maximum number of names listed if none is similar to the missing one."""


class InvalidSkill(ValueError):
    """The library refuses an edit. The text tells its author why, with a line per problem."""


class Problem(NamedTuple):
    """A problem of a text, and its line."""

    line: int
    text: str


def refuse(problems: list[str]) -> None:
    """Raise `InvalidSkill` if there are problems."""
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        raise InvalidSkill("\n".join(problems[:SHOWN_PROBLEMS] + [f"and {more} more"] * (more > 0)))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name."""
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=3):
        return f"; did you mean {' or '.join(near)}?"
    more = [f"{len(names) - SHOWN_NAMES} others"] if len(names) > SHOWN_NAMES else []
    return f"; available: {', '.join(names[:SHOWN_NAMES] + more) or 'none'}"
