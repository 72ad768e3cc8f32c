"""Programs: texts of one main function and its helpers, by which an actor acts and a library grows."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Sequence

import msgspec

from speedrunner.library.definition import Definition, read_text
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.store.records import Edit


class Program(msgspec.Struct, frozen=True):
    """A program that a critic has accepted, and what it was written for."""

    objective: str
    source: str


def written(library: Library, source: str, sleep: int = 0) -> tuple[Library, str]:
    """A library with a program, whose main function, the last one, is public, and that function's name.

    Raises:
        InvalidSkill: it is no valid program, or has a name that the library has.
    """
    functions = _functions(read_text(source))
    if not functions:
        raise InvalidSkill("the source must hold a function at its top level")
    if taken := [each.name for each in functions if each.name in library.named]:
        raise InvalidSkill(f"the library has {', '.join(taken)} already; choose other names, or call it")
    main = functions[-1].name
    grown = library.write(source, public=False, sleep=sleep)
    needed = [
        each.name
        for each in grown.signature(main).parameters.values()
        if each.default is inspect.Parameter.empty
    ]
    if needed:
        raise InvalidSkill(
            f"{main}, the last function, is run without arguments: {', '.join(needed)} must have defaults"
        )
    return grown.set_visibility(main, public=True, sleep=sleep), main


async def appended(library: Library, programs: Iterable[Program], sleep: int) -> tuple[Library, list[Edit]]:
    """Add the programs of one episode, in their order.

    Nothing that the library has changes: a function of a name that it has gets another, unless it is the
    same function.

    Returns:
        The library, and an edit for each program.

    Raises:
        SandboxError: nothing can be loaded here.
    """
    edits: list[Edit] = []
    renamed: dict[str, str] = {}  # of this episode's functions, those whose names others have taken
    for program in programs:
        text = read_text(program.source)
        main = _functions(text)[-1].name
        try:
            text = [_renamed(each, renamed) for each in text]
            functions = _functions(text)
            if all(library.named.get(each.name) == each for each in functions):
                continue
            taken = {each.name: _free(each.name, library) for each in functions if each.name in library.named}
            renamed |= taken
            source = "\n\n\n".join(_renamed(each, taken).source for each in text)
            grown, main = written(library, source, sleep)
            await grown.check_loading()
        except InvalidSkill as error:
            edits.append(Edit("write", main, str(error)))
        else:
            library = grown
            edits.append(Edit("write", main))
    return library, edits


def _free(name: str, library: Library) -> str:
    """The name with the first number that makes it new."""
    return next(new for n in itertools.count(2) if (new := f"{name}_{n}") not in library.named)


def _functions(text: Sequence[Definition]) -> list[Definition]:
    return [each for each in text if each.kind == "function"]


def _renamed(definition: Definition, names: dict[str, str]) -> Definition:
    for old, new in names.items():
        if definition.name == old or definition.mentions(old):
            definition = definition.renamed(old, new)
    return definition
