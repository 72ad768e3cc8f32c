"""Line differences between two versions of the skills of an episode, as short as a record needs."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from speedrunner.store.records import Hunk, Module


def hunks(before: Module, after: Module) -> list[Hunk]:
    """Return the changes that turn one module into the other."""
    old, new = _lines(before), _lines(after)
    found = SequenceMatcher(None, old, new).get_opcodes()
    return [Hunk(first, end, new[start:stop]) for kind, first, end, start, stop in found if kind != "equal"]


def apply_hunks(before: Module, changes: Sequence[Hunk]) -> Module:
    """Return the module after the changes: the second argument of `hunks`."""
    lines = _lines(before)
    for cut in reversed(changes):
        lines[cut.first : cut.end] = cut.lines
    public, private, source = ([line[1:] for line in lines if line[:1] == mark] for mark in _MARKS)
    return Module("\n".join(source), tuple(public), tuple(private))


_MARKS = "+-="
"""Prefixes of lines with public names, private names and source."""


def _lines(module: Module) -> list[str]:
    parts = (module.public, module.private, module.source.split("\n"))
    return [mark + line for mark, part in zip(_MARKS, parts, strict=True) for line in part]
