"""A policy's skills and notes as text for people, with diffs and call graphs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import accumulate

from speedrunner.library.library import Library

STEPS = 10_000_000
"""Maximum lines, and pairs of equal lines, that a search for the shortest diff examines."""

EMPTY = "(the library is empty)"


def source_text(library: Library, notes: str = "") -> str:
    """Return the library's module, with a comment on each function's visibility and sleeps, then the policy's
    notes, if any."""
    functions = []
    for skill in library.skills:
        wrote = f"from sleep {skill.created}"
        if skill.edited != skill.created:
            wrote += f", edited in sleep {skill.edited}"
        functions.append(f"# {_visibility(skill.public)}, {wrote}\n{library.named[skill.name].source}")
    parts = ["\n".join(library.shared.values()), *functions, _notes(notes)]
    return "\n\n\n".join(filter(None, parts)) or EMPTY


def diff_lines(before: list[str], after: list[str], names: tuple[str, str]) -> Iterator[str]:
    """Yield a unified diff of `compared_lines`; empty if both are equal.

    If so many lines are alike that finding the shortest diff would take minutes, all lines are shown as
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
    """The search exceeds `STEPS`."""


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
        """Return one match within the lines `alo` to `ahi`, and count each of them. Raises `_TooLong`."""
        self._left -= self._steps[-1 if ahi is None else ahi] - self._steps[alo]
        if self._left < 0:
            raise _TooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def compared_lines(library: Library, notes: str = "") -> list[str]:
    """Return the lines by which two policies are compared: those of `source_text` without the sleeps."""
    lines = [line for source in library.shared.values() for line in source.split("\n")]
    for skill in library.skills:
        lines += ["", f"# {_visibility(skill.public)}", *library.named[skill.name].source.split("\n")]
    return lines + (["", *_notes(notes).split("\n")] if notes else [])


def _visibility(public: bool) -> str:
    return "public" if public else "private"


def _notes(notes: str) -> str:
    return f"# notes for the actor\n{notes}" if notes else ""
