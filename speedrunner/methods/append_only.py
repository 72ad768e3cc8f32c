"""Libraries that only grow; existing skills never change."""

from __future__ import annotations

from speedrunner.library.definition import find_dependencies, read_text
from speedrunner.methods import Edit, InvalidSkill, Library, apply_edit, function_names

TAKEN = "the library already has this name, and its skills cannot be changed"


async def append_skills(library: Library, source: str, sleep: int) -> tuple[Library, list[Edit]]:
    """Add the functions of a text that are new and valid, all of them public; refuse the others.

    A function is added together with the functions of the text that it needs, or not at all.

    Returns:
        The library, and an edit for each function, or for several that need each other.

    Raises `SandboxError`: nothing can be loaded here.
    """
    try:
        text = read_text(source)
    except InvalidSkill as error:
        return library, [Edit("write", name, str(error)) for name in function_names(source) or ["(none)"]]
    named = {each.name: each for each in text if each.kind != "other"}
    functions = [name for name, each in named.items() if each.kind == "function"]
    edits = [Edit("write", name, TAKEN) for name in functions if name in library.named]
    needs = {name: find_dependencies(name, named) for name in functions}
    for name in sorted(set(functions) - library.named.keys(), key=lambda name: (len(needs[name]), name)):
        if name in library.named:  # it was added together with another function
            continue
        there = {each for each in needs[name] if each in functions and each in library.named}
        group = needs[name] - there
        names = ", ".join(each for each in functions if each in group)
        text_of_group = "\n\n\n".join(each.source for each in text if each.name in group)
        edit = Edit("write", names, source=text_of_group, public=True)
        try:
            if other := [each for each in sorted(there) if library.named[each] != named[each]]:
                raise InvalidSkill(f"{name} needs {', '.join(other)}: {TAKEN}")
            grown = apply_edit(library, edit, sleep=sleep)
            await grown.check_loading()
        except InvalidSkill as error:
            edits.append(Edit("write", name, str(error)))
        else:
            library = grown
            edits.append(edit)
    return library, edits or [Edit("write", "(none)", "the source must define a function at the top level")]
