"""How much a library may hold, and how its author is told what is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

TOKEN_LIMIT = 250_000
"""Words and signs that a module may have, those in texts and comments included. Python's parser takes up to
900 bytes for one, and pyflakes some 20 microseconds."""

DEFINITION_LIMIT = 5_000
"""Imports, constants, classes and functions of a module."""

SOURCE_LIMIT = 20_000
"""Characters that the source of one edit may have, and so each function and each constant."""

NAME_LIMIT = 200
"""Characters of a function's new name, which takes the place of the old one in all callers."""

DEPTH_LIMIT = 300
"""Levels of code within code. Python's own limit, ten times as many, is another one in each place."""

SHOWN_CHARS = 80
"""Characters of a type, a default or a line in an error's text."""

SHOWN_PROBLEMS = 20
"""Problems of one edit that its author is told at once."""

SHOWN_NAMES = 50
"""Names that are listed where none is near to the one that was not found."""


class InvalidSkill(ValueError):
    """An edit of the library is refused. The text tells its author why, a line per problem."""


class Problem(NamedTuple):
    """What is wrong with a text, and in which line."""

    line: int
    text: str


def refuse(problems: list[str]) -> None:
    """Raise `InvalidSkill` where there are problems."""
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        raise InvalidSkill("\n".join(problems[:SHOWN_PROBLEMS] + [f"and {more} more"] * (more > 0)))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message on a name that is not known."""
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=3):
        return f"; did you mean {' or '.join(near)}?"
    more = [f"{len(names) - SHOWN_NAMES} others"] if len(names) > SHOWN_NAMES else []
    return f"; available: {', '.join(names[:SHOWN_NAMES] + more) or 'none'}"
