"""What a policy has learnt as text for people: skills and notes, what changed in them, what calls what."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import accumulate

from speedrunner.library.library import Library

STEPS = 10_000_000
"""Lines, and pairs of equal lines, that a search for the shortest diff may look at."""

EMPTY = "(the library is empty)"


def source_text(library: Library, notes: str = "") -> str:
    """The library's module, each function under a comment on who may call it and which sleeps wrote it, and
    the notes of a policy that keeps some."""
    functions = []
    for skill in library.skills:
        wrote = f"from sleep {skill.created}"
        if skill.edited != skill.created:
            wrote += f", edited in sleep {skill.edited}"
        functions.append(f"# {_visibility(skill.public)}, {wrote}\n{library.named[skill.name].source}")
    parts = ["\n".join(library.shared.values()), *functions, _notes(notes)]
    return "\n\n\n".join(filter(None, parts)) or EMPTY


def diff_lines(before: list[str], after: list[str], names: tuple[str, str]) -> Iterator[str]:
    """What changed, as a unified diff of `compared_lines`; nothing where both are the same.

    Where so many lines are alike that finding the shortest diff would take minutes, all lines are shown as
    changed.
    """
    try:
        _BoundedMatcher(before, after).get_matching_blocks()
    except _TooLong:
        yield from (f"--- {names[0]}", f"+++ {names[1]}", f"@@ -1,{len(before)} +1,{len(after)} @@")
        yield from (f"-{line}" for line in before)
        yield from (f"+{line}" for line in after)
        return
    yield from difflib.unified_diff(before, after, *names, lineterm="", n=2)


class _TooLong(Exception):
    """The search takes more than `STEPS`."""


class _BoundedMatcher(difflib.SequenceMatcher[str]):
    """Matches the lines of two texts as `difflib` does, and raises `_TooLong` after `STEPS`."""

    b2j: dict[str, list[int]]

    def __init__(self, before: list[str], after: list[str]) -> None:
        super().__init__(None, before, after)
        self._steps = [0, *accumulate(1 + len(self.b2j.get(line, ())) for line in before)]
        self._left = STEPS

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        """Find one match of the lines `alo` to `ahi`, each of which is looked at. Raises `_TooLong`."""
        self._left -= self._steps[-1 if ahi is None else ahi] - self._steps[alo]
        if self._left < 0:
            raise _TooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def compared_lines(library: Library, notes: str = "") -> list[str]:
    """What two policies are compared by: what `source_text` shows, without the sleeps that wrote it."""
    lines = [line for source in library.shared.values() for line in source.split("\n")]
    for skill in library.skills:
        lines += ["", f"# {_visibility(skill.public)}", *library.named[skill.name].source.split("\n")]
    return lines + (["", *_notes(notes).split("\n")] if notes else [])


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


def _notes(notes: str) -> str:
    return f"# notes for the actor\n{notes}" if notes else ""
