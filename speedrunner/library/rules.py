"""What skills may hold, and what an edit may not do to the library that it meets.

It may take no names, miss none, and not change what others use.
"""

from __future__ import annotations

import builtins
import difflib
import graphlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from speedrunner.library.preamble import in_order
from speedrunner.library.skill_source import Definition, ModuleSource, Problem, SkillSource

ALLOWED_MODULES = (
    "collections",
    "copy",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "typing",
)
"""Modules that skills may import."""

FORBIDDEN_BUILTINS = frozenset(
    {
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "exit",
        "globals",
        "help",
        "input",
        "locals",
        "open",
        "quit",
        "vars",
    }
)
"""Builtins that a skill has no use for: they reach around the checks of the library."""

BUILTINS = frozenset(vars(builtins)) - FORBIDDEN_BUILTINS

SOURCE_LIMIT = 20_000
"""Characters that the source of one edit may have, and so each function and each constant."""

DEPTH_LIMIT = 300
"""Levels of code within code. Python's own limit, ten times as many, is another one in each place."""

MODULE_LIMIT = 400_000
"""Characters that a whole library may have."""

CLASS_LIMIT = 2_000
"""Characters of one class: classes hold data that skills pass to each other, behaviour belongs in skills."""

NAME_LIMIT = 64
"""Characters that a skill's name may have; model tool formats allow no more."""

RESERVED = frozenset({"submit_answer"})
"""Tools of the actor that are neither primitives nor skills."""


@dataclass(frozen=True, slots=True)
class Met:
    """What an edit meets.

    Attributes:
        primitives: their names.
        skills: names of the library's skills.
        definitions: the library's imports, constants and classes.
        users: returns the skills that use a definition.
    """

    primitives: Collection[str]
    skills: Collection[str]
    definitions: Mapping[str, Definition]
    users: Callable[[str], list[str]]


def name_problems(parsed: ModuleSource, met: Met) -> Iterator[Problem]:
    """Names that are taken."""
    functions = {each.name: each.line for each in parsed.functions}
    definitions = {each.name: each.line for each in parsed.definitions.values()}
    for name, line in {**functions, **definitions}.items():
        what = None
        if name in met.primitives:
            what = "a primitive"
        elif name in RESERVED:
            what = "a tool of the actor"
        elif name in BUILTINS or name in FORBIDDEN_BUILTINS:
            what = "a Python builtin"
        elif name in definitions and name in met.skills:
            what = "a skill"
        elif name in functions and name in met.definitions:
            what = "an import, a constant or a class"
        if what is not None:
            yield Problem(line, f"{name} is already {what}; choose another name")
    parts: list[SkillSource | Definition] = [*parsed.functions, *parsed.definitions.values()]
    for part in parts:
        for name, line in part.binds.items():
            if name in met.primitives:
                yield Problem(line, f"{name} is already a primitive; choose another name")


def unknown_names(parsed: ModuleSource, met: Met) -> Iterator[Problem]:
    """Names that code takes from the module and that will not be there, or not in time."""
    functions = {each.name for each in parsed.functions}
    definitions = {**met.definitions, **parsed.definitions}
    callables = {*met.primitives, *met.skills, *functions}
    known = callables | definitions.keys()
    may_be_anything = "*" in parsed.definitions  # which is refused for itself
    parts: list[SkillSource | Definition] = [*parsed.functions, *parsed.definitions.values()]
    for part in parts:
        for name, line in part.reads.items():
            if name in FORBIDDEN_BUILTINS and name not in known:
                yield Problem(line, f"{name} is not available to skills")
            elif name not in known and name not in BUILTINS and not may_be_anything:
                yield Problem(line, f"{name} is not defined{suggestion(name, known)}")
    for each in parsed.definitions.values():
        for name in sorted(each.needs & callables):
            yield Problem(
                each.line,
                f"the class {each.name} needs {name} before there are skills; use it in its methods only",
            )
    try:
        in_order(definitions)
    except graphlib.CycleError as error:
        names = list(dict.fromkeys(error.args[1]))
        line = min(definitions[name].line for name in names)
        yield Problem(line, f"the classes {', '.join(names)} cannot be defined: each needs another one first")


def shared_changes(parsed: ModuleSource, met: Met) -> Iterator[Problem]:
    """Definitions that other skills use and that would get another meaning."""
    own = {each.name for each in parsed.functions}
    for name, each in parsed.definitions.items():
        now = met.definitions.get(name)
        if now is None or now.source == each.source:
            continue
        if others := [user for user in met.users(name) if user not in own]:
            yield Problem(
                each.line,
                f"{name} is already `{first_line(now.source)}`, used by {', '.join(others)};"
                f" choose another name, or edit {name} itself",
            )


def first_line(text: str) -> str:
    """Return what stands for a text in a message."""
    first, _, rest = text.partition("\n")
    return f"{first} ..." if rest else first


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message on a name that is not known."""
    near = difflib.get_close_matches(name, sorted(known), n=3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    there_are = ", ".join(sorted(known)) or "none"
    return f"; there are {there_are}"
