"""Libraries as text for people: their source, what changed between versions, what calls what."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from speedrunner.library.library import Library

EMPTY = "(the library is empty)"


def source_text(library: Library) -> str:
    """The library's module, each function under a comment on who may call it and which sleeps wrote it."""
    functions = []
    for skill in library.skills:
        wrote = f"from sleep {skill.created}"
        if skill.edited != skill.created:
            wrote += f", edited in sleep {skill.edited}"
        functions.append(f"# {_visibility(skill.public)}, {wrote}\n{library.named[skill.name].source}")
    return "\n\n\n".join(filter(None, ["\n".join(library.shared.values()), *functions])) or EMPTY


def diff_lines(before: Library, after: Library, versions: tuple[int, int]) -> Iterator[str]:
    """What changed, as a unified diff; nothing where both are the same."""
    old, new = (f"v{version:04d}" for version in versions)
    yield from difflib.unified_diff(_lines(before), _lines(after), old, new, lineterm="", n=2)


def graph_lines(library: Library) -> Iterator[str]:
    """The call graph as trees that begin at the skills that no other skill calls.

    Each skill's own calls are shown where it occurs first; `...` stands for them afterwards.
    """
    if not library.skills:
        yield EMPTY
    graph = {name: library.calls(name) for name in library.by_name}
    shown: set[str] = set()

    def tree(name: str, depth: int) -> Iterator[str]:
        pad = "  " * depth
        again = name in shown and any(called != name for called in graph[name])
        yield f"{pad}{name} ({_visibility(library.skill(name).public)}){' ...' if again else ''}"
        if again:
            return
        shown.add(name)
        primitives = [called for called in graph[name] if called not in graph]
        if primitives:
            yield f"{pad}  {', '.join(primitives)}"
        for called in graph[name]:
            if called in graph and called != name:
                yield from tree(called, depth + 1)

    called = {name for caller, names in graph.items() for name in names if name != caller}
    for name in [*(each for each in graph if each not in called), *graph]:
        if name not in shown:  # then circles, which have no beginning
            yield from tree(name, 0)


def _visibility(public: bool) -> str:
    return "public" if public else "private"


def _lines(library: Library) -> list[str]:
    lines = [line for source in library.shared.values() for line in source.split("\n")]
    for skill in library.skills:
        lines += ["", f"# {_visibility(skill.public)}", *library.named[skill.name].source.split("\n")]
    return lines
