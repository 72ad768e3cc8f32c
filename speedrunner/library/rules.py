"""What a library may hold, and how its author is told what it may not."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Iterable
from typing import NamedTuple

ALLOWED_MODULES = (
    *("collections", "copy", "dataclasses", "enum", "functools", "heapq", "itertools", "json", "math"),
    *("operator", "random", "re", "statistics", "string", "typing"),
)
"""Modules that skills may import."""

FORBIDDEN_BUILTINS = frozenset(
    {
        *("__import__", "breakpoint", "compile", "eval", "exec", "exit", "globals", "help", "input"),
        *("locals", "open", "quit", "vars"),
    }
)
"""Builtins that a skill has no use for: they reach around the checks of the library."""

BUILTINS = frozenset(vars(builtins)) - FORBIDDEN_BUILTINS

RESERVED = frozenset({"submit_answer"})
"""Tools of the actor that are neither primitives nor skills."""

MODULE_LIMIT = 4_000_000
"""Characters that a whole library may have."""

SOURCE_LIMIT = 20_000
"""Characters that the source of one edit may have, and so each function and each constant."""

CLASS_LIMIT = 2_000
"""Characters of one class: classes hold data that skills pass to each other, behaviour belongs in skills."""

NAME_LIMIT = 64
"""Characters that a skill's name may have; model tool formats allow no more."""

DEPTH_LIMIT = 300
"""Levels of code within code. Python's own limit, ten times as many, is another one in each place."""

SHOWN_PROBLEMS = 20
"""Problems of one edit that its author is told at once."""

SHOWN_NAMES = 50
"""Names that are listed where none is near to the one that was not found."""


class InvalidSkill(Exception):
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
    return f"; there are {', '.join(names[:SHOWN_NAMES] + more) or 'none'}"
