"""Programs: a main function with its helpers. Actors act by them, and libraries grow by them."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from speedrunner.library.definition import Definition, read_text
from speedrunner.methods import Edit, InvalidSkill, Library, function_names

SATURATION, LENGTH = 1.5, 0.75
"""BM25's k1, which limits the effect of a repeated word, and b, which discounts long texts."""


class Program(msgspec.Struct, frozen=True):
    """A program that a critic has accepted, and its objective."""

    objective: str
    source: str


def add_program(library: Library, source: str, sleep: int = 0) -> tuple[Library, str]:
    """Return a library with a program, and the name of its main function, the last one, which is public.

    Raises `InvalidSkill`: it is not a valid program, or uses a name of the library.
    """
    text = read_text(source)
    functions = _functions(text)
    if not functions:
        raise InvalidSkill("the source must define a function at the top level")
    if others := [definition.name for definition in text if definition.kind in ("constant", "class")]:
        raise InvalidSkill(
            f"a program contains only functions and imports: define {', '.join(others)} inside a function"
        )
    if taken := [definition.name for definition in functions if definition.name in library.named]:
        raise InvalidSkill(f"the library already has {', '.join(taken)}: choose other names, or call these")
    main = functions[-1].name
    grown = library.write(source, public=[main], sleep=sleep)
    parameters = grown.signature(main).parameters.values()
    if needed := [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]:
        raise InvalidSkill(
            f"{main}, the last function, runs without arguments: {', '.join(needed)} must have defaults"
        )
    return grown, main


async def add_programs(
    library: Library, programs: Sequence[Program], sleep: int
) -> tuple[Library, list[Edit]]:
    """Add the programs of one episode, in order.

    The library's existing programs never change. If a name is taken, the episode's function gets a number, in
    all its programs. A program that is already in the library, verbatim, is not added again.

    Returns:
        The library, and an edit for each new program.

    Raises `SandboxError`: nothing can be loaded here.
    """
    edits: list[Edit] = []
    own = {word for program in programs for word in re.findall(r"\w+", program.source)}
    names: dict[str, str] = {}  # new names of this episode's functions with taken names
    for program in programs:
        what = ", ".join(function_names(program.source)) or "(none)"
        try:
            text = read_text(program.source)
            if _functions(text) and all(
                library.named.get(definition.name) == _rename_functions(definition, names)
                for definition in _functions(text)
            ):
                continue
            for name in (
                definition.name for definition in _functions(text) if definition.name in library.named
            ):
                names[name] = _free(name, library.named.keys() | own | set(names.values()))
            source = "\n\n\n".join(_rename_functions(definition, names).source for definition in text)
            what = ", ".join(function_names(source)) or what
            grown, main = add_program(library, source, sleep)
            await grown.check_loading()
        except InvalidSkill as error:
            edits.append(Edit("write", what, str(error)))
        else:
            library = grown
            edits.append(Edit("write", what, source=source, public=(main,)))
    return library, edits


def score_bm25(query: str, texts: Sequence[str]) -> list[float]:
    """Return the Okapi BM25 score of each text; a higher one fits better, 0 shares no word with the query.

    A word is a run of letters and digits, in lower case. A name such as `place_table` has two.
    """
    counts = [Counter(_words(text)) for text in texts]
    mean = sum(count.total() for count in counts) / max(len(counts), 1)
    scores = [0.0] * len(texts)
    for word in dict.fromkeys(_words(query)):
        having = sum(word in count for count in counts)
        weight = math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))
        for place, count in enumerate(counts):
            if times := count[word]:
                damping = SATURATION * (1 - LENGTH + LENGTH * count.total() / mean)
                scores[place] += weight * times * (SATURATION + 1) / (times + damping)
    return scores


def _functions(text: Sequence[Definition]) -> list[Definition]:
    return [definition for definition in text if definition.kind == "function"]


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name with the first number that makes it new."""
    return next(new for n in itertools.count(2) if (new := f"{name}_{n}") not in taken)


def _rename_functions(definition: Definition, names: dict[str, str]) -> Definition:
    """Return a definition with several functions renamed, none to another one's old name."""
    for old, new in names.items():
        if definition.name == old or definition.mentions(old):
            definition = definition.renamed(old, new)
    return definition


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
