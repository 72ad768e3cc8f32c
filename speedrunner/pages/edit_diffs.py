"""Changes of skills as diffs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from speedrunner.library.library import Library
from speedrunner.store.records import Edit

SHARED = "shared code"
"""Heading of the diff of imports, constants and classes."""


class Diff(msgspec.Struct, frozen=True):
    """The changed lines of one function, or of the shared code.

    Attributes:
        lines: a unified diff without its file names.
        added, removed: number of lines.
    """

    name: str
    lines: list[str]
    added: int
    removed: int


class ShownEdit(msgspec.Struct, frozen=True):
    """One requested edit.

    Attributes:
        what: action and names, such as `rename walk to go`.
        error: why it was refused; `None`: accepted.
        diffs: the text that it writes or replaces.
    """

    what: str
    error: str | None
    diffs: list[Diff]


def show_edits(before: Library | None, edits: Sequence[Edit]) -> list[ShownEdit]:
    """Return edits with their texts as diffs.

    Args:
        before: the library before the first edit, whose skills a new text replaces; `None` if unknown.
    """
    sources = {} if before is None else list_sources(before)
    found = []
    for edit in edits:
        diffs = []
        if edit.source is not None:
            diffs = [compare_texts(edit.name, sources.get(edit.name, ""), edit.source)]
        elif edit.old is not None and edit.new is not None:
            diffs = [compare_texts(edit.name, edit.old, edit.new)]
        found.append(ShownEdit(describe_edit(edit), edit.error, diffs))
    return found


def describe_edit(edit: Edit) -> str:
    """Return an edit's action and names."""
    if edit.action == "visibility" and isinstance(edit.public, bool):
        return f"make {edit.name} {'public' if edit.public else 'private'}"
    renamed = f" to {edit.new_name}" if edit.new_name else ""
    return f"{edit.action} {edit.name}{renamed}"


def list_sources(library: Library) -> dict[str, str]:
    """Return the shared code and the source of each function, by name."""
    functions = {each.name: each.source for each in library.definitions if each.kind == "function"}
    return {SHARED: "\n".join(library.shared.values()), **functions}


def compare_libraries(before: Library, after: Library) -> list[Diff]:
    """Return the differences of two libraries: of the shared code, then of each function."""
    old, new = list_sources(before), list_sources(after)
    return [
        compare_texts(name, old.get(name, ""), new.get(name, ""))
        for name in dict.fromkeys([*new, *old])
        if old.get(name) != new.get(name)
    ]


def compare_texts(name: str, before: str, after: str) -> Diff:
    """Return the changed lines of a text."""
    old, new = (text.split("\n") if text else [] for text in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]  # without the names of files
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return Diff(name, lines, added, removed)
