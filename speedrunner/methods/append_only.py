"""Libraries that only grow: what is in them is never changed."""

from __future__ import annotations

from collections.abc import Sequence

from speedrunner.library.definition import Definition, function_names, read_text
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.store.records import Edit

TAKEN = "the library has one of this name, and nothing in it is changed"


async def appended(library: Library, source: str, sleep: int) -> tuple[Library, list[Edit]]:
    """Add those functions of a text, public all of them, that are new and valid; the others are refused.

    Functions that need each other are added together or not at all.

    Returns:
        The library, and an edit for each function.

    Raises:
        SandboxError: nothing can be loaded here.
    """
    try:
        text = read_text(source)
    except InvalidSkill as error:
        return library, [Edit("write", name, str(error)) for name in function_names(source) or ["(none)"]]
    names = dict.fromkeys(each.name for each in text if each.kind == "function")
    edits = [Edit("write", name, TAKEN) for name in names if name in library.named]
    left = [name for name in names if name not in library.named]
    together = True  # first all at once, then each by itself, until no more goes in
    while left:
        refused: dict[str, str] = {}
        for chosen in [left] if together else [[name] for name in left]:
            try:
                library = await _written(library, text, chosen, sleep)
            except InvalidSkill as error:
                refused |= dict.fromkeys(chosen, str(error))
            else:
                edits += [Edit("write", name) for name in chosen]
        if len(refused) == len(left) and not together:
            edits += [Edit("write", name, why) for name, why in refused.items()]
            break
        left, together = list(refused), False
    return library, edits


async def _written(library: Library, text: Sequence[Definition], names: list[str], sleep: int) -> Library:
    """Write some functions of a text, with all of it that is no function. Raises `InvalidSkill`."""
    chosen = [each.source for each in text if each.kind != "function" or each.name in names]
    written = library.write("\n\n\n".join(chosen), public=True, sleep=sleep)
    await written.check_loading()
    return written
