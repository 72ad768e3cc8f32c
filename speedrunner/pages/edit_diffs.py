"""The edits of a sleep as diffs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from speedrunner.library.definition import Definition, read_text
from speedrunner.library.rules import InvalidSkill
from speedrunner.library.text import diff_lines
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
        number: position among the sleep's edits, from 1.
        what: action and names, such as `rename walk to go`.
        error: why it was refused; `None`: accepted.
    """

    number: int
    what: str
    error: str | None
    diffs: list[Diff]


def show_edits(before: Iterable[Definition], edits: Sequence[Edit]) -> list[ShownEdit]:
    """Return edits with the differences that they make, or would have made if they were refused.

    A refused deletion has none.

    Args:
        before: the library's definitions before the first edit.
    """
    there = {each.name: each for each in before}
    found = []
    for number, edit in enumerate(edits, start=1):
        try:
            after = _apply(there, edit)
            diffs = compare_definitions(there, after)
        except InvalidSkill:
            after, diffs = there, _show_request(edit)
        if edit.error is not None and edit.action == "delete":
            diffs = []
        found.append(ShownEdit(number, describe_edit(edit), edit.error, diffs))
        if edit.error is None:
            there = after
    return found


def describe_edit(edit: Edit) -> str:
    """Return an edit's action and names."""
    if edit.action == "visibility" and isinstance(edit.public, bool):
        return f"make {edit.name} {'public' if edit.public else 'private'}"
    renamed = f" to {edit.new_name}" if edit.new_name else ""
    return f"{edit.action} {edit.name}{renamed}"


def compare_definitions(before: Mapping[str, Definition], after: Mapping[str, Definition]) -> list[Diff]:
    """Return the differences of two modules: one for the shared code, then one for each changed function."""
    shared = [
        [line for each in those.values() if each.kind != "function" for line in each.source.split("\n")]
        for those in (before, after)
    ]
    found = [_compare(SHARED, *shared)] if shared[0] != shared[1] else []
    for name in dict.fromkeys([*after, *before]):
        old, new = before.get(name), after.get(name)
        sides = [each if each is not None and each.kind == "function" else None for each in (old, new)]
        if sides[0] is not sides[1] and sides[0] != sides[1]:
            texts = ([] if each is None else each.source.split("\n") for each in sides)
            found.append(_compare(name, *texts))
    return found


def _apply(there: Mapping[str, Definition], edit: Edit) -> dict[str, Definition]:
    """Return the definitions after an edit, without checking the library's rules.

    Raises `InvalidSkill` if the record lacks arguments, or the edit does not fit the definitions.
    """
    if edit.action != "write" and edit.name not in there:
        raise InvalidSkill(f"there is no {edit.name}")
    match edit:
        case Edit(action="write", source=str(source)):
            return {**there, **{each.name: each for each in read_text(source)}}
        case Edit(action="edit", old=str(old), new=str(new)):
            text = there[edit.name].source
            if not old or text.count(old) != 1:
                raise InvalidSkill("the piece does not occur exactly once")
            changed = read_text(text.replace(old, new))
            return {**there, **{each.name: each for each in changed}}
        case Edit(action="rename", new_name=str(new_name)):
            return {
                new_name if each.name == edit.name else each.name: each.renamed(edit.name, new_name)
                if each.name == edit.name or each.mentions(edit.name)
                else each
                for each in there.values()
            }
        case Edit(action="delete"):
            return {name: each for name, each in there.items() if name != edit.name}
        case Edit(action="visibility"):
            return dict(there)
    raise InvalidSkill("its record lacks arguments")


def _show_request(edit: Edit) -> list[Diff]:
    """Return the texts of an edit that cannot be applied."""
    if edit.source is not None:
        return [_compare(edit.name, [], edit.source.split("\n"))]
    if edit.old is not None and edit.new is not None:
        return [_compare(edit.name, edit.old.split("\n"), edit.new.split("\n"))]
    return []


def _compare(name: str, before: list[str], after: list[str]) -> Diff:
    lines = list(diff_lines(before, after, ("", "")))[2:]  # without the names of files
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return Diff(name, lines, added, removed)
