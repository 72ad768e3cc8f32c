"""What the source text of skills says, as data, and what is wrong with it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class InvalidSkill(Exception):
    """An edit of the library is refused. The text tells its author why, a line per problem."""


@dataclass(frozen=True, slots=True)
class Definition:
    """An import, a constant or a class, which skills share.

    Attributes:
        name: what it binds.
        source: its text; an import that binds several names is split.
        reads: names that it takes from the module, each with its first line.
        needs: those of `reads` that must exist when the module is loaded.
        binds: names that its methods bind for themselves, each with its first line.
    """

    name: str
    kind: Literal["import", "constant", "class"]
    source: str
    line: int
    reads: Mapping[str, int] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    binds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SkillSource:
    """What one function's text says.

    Attributes:
        name: the function's name.
        source: the function's own text, without what stands before it.
        line: where it begins in the text that was read.
        doc: its docstring, unindented.
        signature: its parameters with real types and defaults; without a return type.
        reads: names that its code takes from the module, each with its first line.
        binds: names that its code binds for itself, each with its first line.
    """

    name: str
    source: str
    line: int
    doc: str
    signature: inspect.Signature
    reads: Mapping[str, int]
    binds: Mapping[str, int]


class Problem(NamedTuple):
    """What is wrong with a text, and in which line."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """What a module's text says.

    Attributes:
        definitions: by name, in their order.
        functions: in their order.
        problems: what is wrong with the text itself; whether its names exist is left to the library.
    """

    definitions: Mapping[str, Definition]
    functions: tuple[SkillSource, ...]
    problems: tuple[Problem, ...] = ()

    def check(self, *more: Problem) -> None:
        """Raise `InvalidSkill` with all problems, and those of others, in the order of lines."""
        if problems := sorted({*self.problems, *more}):
            raise InvalidSkill("\n".join(f"line {line}: {text}" for line, text in problems))
