"""Programs: a main function with its helpers. Actors act by them, and libraries grow by them."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Collection, Sequence

import msgspec

from speedrunner.library.definition import Definition, find_dependencies, read_text
from speedrunner.methods import Edit, InvalidSkill, Library, function_names


class Program(msgspec.Struct, frozen=True):
    """A program that a critic has accepted, and its objective."""

    objective: str
    source: str


def add_program(library: Library, source: str, sleep: int = 0) -> tuple[Library, str]:
    """Return a library with a program, and the name of its main function, the last one, which is public.

    Functions and constants that the library already has, byte for byte, stay as they are.

    Raises `InvalidSkill`: it is not a valid program, or gives a name of the library to another function or
    constant.
    """
    text = read_text(source)
    functions = [definition.name for definition in text if definition.kind == "function"]
    if not functions:
        raise InvalidSkill("the source must define a function at the top level")
    if taken := [one.name for one in _named(text) if _is_taken(library, one)]:
        entries = [library.entry(name) if name in library.by_name else library.shared[name] for name in taken]
        advice = "the library has other definitions with these names: use those, or rename yours"
        raise InvalidSkill("\n".join([advice, *entries]))
    main = functions[-1]
    known = [skill.name for skill in library.skills if skill.public]
    grown = library.write(source, public=[*known, main], sleep=sleep)
    parameters = grown.signature(main).parameters.values()
    if needed := [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]:
        raise InvalidSkill(
            f"{main}, the last function, runs without arguments: {', '.join(needed)} must have defaults"
        )
    return grown, main


def add_programs(library: Library, programs: Sequence[Program], sleep: int) -> tuple[Library, list[Edit]]:
    """Add the programs of one episode, in order.

    The library's existing functions and constants never change. If another one has a name, the episode's
    function or constant gets a number, in all its programs. Equal ones are added once.

    Returns:
        The library, and an edit for each program that adds something.
    """
    edits: list[Edit] = []
    own = {word for program in programs for word in re.findall(r"\w+", program.source)}
    names: dict[str, str] = {}  # new names of this episode's functions and constants with taken names
    for program in programs:
        text = read_text(program.source)
        functions = function_names(program.source)
        try:
            _choose_names(library, _named(text), own, names)
            source = "\n\n\n".join(_rename(definition, names).source for definition in text)
            functions = function_names(source)
            grown, _ = add_program(library, source, sleep)
        except InvalidSkill as error:
            edits.append(Edit("write", ", ".join(functions), str(error)))
            continue
        if changed := [name for name in functions if grown.by_name[name] != library.by_name.get(name)]:
            public = tuple(name for name in functions if grown.by_name[name].public)
            edits.append(Edit("write", ", ".join(changed), source=source, public=public))
        library = grown
    return library, edits


def _named(text: Sequence[Definition]) -> list[Definition]:
    """Return the functions and constants of a program."""
    return [definition for definition in text if definition.kind in ("function", "constant")]


def _is_taken(library: Library, definition: Definition) -> bool:
    """Return whether a library has another definition with this name."""
    return library.named.get(definition.name, definition) != definition


def _choose_names(
    library: Library, definitions: Sequence[Definition], own: Collection[str], names: dict[str, str]
) -> None:
    """Add to `names` a new name for each function or constant whose name the library gives to another one:
    that of an equal one of the library with a number, else the first number that makes it new.

    Args:
        own: words of the episode's programs, which are no new names.
    """
    named = {definition.name: definition for definition in definitions}
    numbers = {name: itertools.count(2) for name in named}  # each number is tried once, so that this ends
    helpers_first = sorted(definitions, key=lambda one: len(find_dependencies(one.name, named)))
    while taken := [one for one in helpers_first if _is_taken(library, _rename(one, names))]:
        first, used = taken[0], {*own, *names.values()}
        names[first.name] = next(
            new
            for number in numbers[first.name]
            if (new := f"{first.name}_{number}") not in used
            and not _is_taken(library, _rename(first, {**names, first.name: new}))
        )


def _rename(definition: Definition, names: dict[str, str]) -> Definition:
    """Return a definition with several functions and constants renamed, none to another one's old name."""
    for old, new in names.items():
        if definition.name == old or definition.mentions(old):
            definition = definition.renamed(old, new)
    return definition
