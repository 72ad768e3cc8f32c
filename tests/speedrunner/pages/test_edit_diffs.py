"""Edits as diffs."""

from __future__ import annotations

import pytest

from speedrunner.library.definition import read_text
from speedrunner.pages.edit_diffs import Diff, show_edits
from speedrunner.store.records import Edit

WALK = 'def walk_far() -> str:\n    """Walk."""\n    return walk()'
GO = 'def go() -> str:\n    """Go."""\n    return walk_far()'


def test_a_new_skill_is_all_added() -> None:
    (edit,) = show_edits([], [Edit("write", "walk_far", source=WALK)])
    (diff,) = edit.diffs
    assert (edit.what, edit.error) == ("write walk_far", None)
    assert (diff.name, diff.added, diff.removed) == ("walk_far", 3, 0)
    assert diff.lines[1:] == [f"+{line}" for line in WALK.split("\n")]


def test_each_edit_is_compared_with_what_the_earlier_ones_left() -> None:
    edits = [
        Edit("write", "walk_far", source=WALK),
        Edit("edit", "walk_far", old="walk()", new="look()"),
        Edit("edit", "walk_far", old="look()", new="walk()"),
    ]
    shown = show_edits([], edits)
    assert [line for line in shown[1].diffs[0].lines if line[0] in "+-"] == [
        "-    return walk()",
        "+    return look()",
    ]
    assert [line for line in shown[2].diffs[0].lines if line[0] in "+-"] == [
        "-    return look()",
        "+    return walk()",
    ]


def test_a_refused_edit_shows_what_it_would_have_changed_and_leaves_the_library_as_it_is() -> None:
    edits = [
        Edit("edit", "walk_far", "look is no skill", old="walk()", new="look()"),
        Edit("edit", "walk_far", old="walk()", new="turn()"),
    ]
    refused, accepted = show_edits(read_text(WALK), edits)
    assert refused.error == "look is no skill"
    assert "+    return look()" in refused.diffs[0].lines
    assert "-    return walk()" in accepted.diffs[0].lines


def test_a_deletion_removes_all_lines_and_a_refused_one_none() -> None:
    edits = [Edit("delete", "walk_far", "walk_far is called by go"), Edit("delete", "walk_far")]
    refused, accepted = show_edits(read_text(WALK), edits)
    assert refused.diffs == []
    assert accepted.diffs == [
        Diff("walk_far", ["@@ -1,3 +0,0 @@", *(f"-{line}" for line in WALK.split("\n"))], 0, 3)
    ]


def test_a_rename_changes_the_callers_too() -> None:
    (edit,) = show_edits(read_text(f"{WALK}\n\n\n{GO}"), [Edit("rename", "walk_far", new_name="run")])
    assert edit.what == "rename walk_far to run"
    assert {diff.name for diff in edit.diffs} == {"walk_far", "run", "go"}
    assert "+    return run()" in next(diff for diff in edit.diffs if diff.name == "go").lines


def test_shared_code_has_one_diff() -> None:
    source = f"import re\n\nSIDES = 4\n\n\n{WALK}"
    (edit,) = show_edits(read_text(WALK), [Edit("write", "walk_far", source=source)])
    assert [(diff.name, diff.added) for diff in edit.diffs] == [("shared code", 2)]


@pytest.mark.parametrize(
    ("edit", "lines"),
    [
        (Edit("write", "f", "not Python", source="def f(:"), ["+def f(:"]),
        (Edit("edit", "missing", "no such skill", old="one", new="two"), ["-one", "+two"]),
        (Edit("write", "f", "too long"), []),
        (Edit("edit", "walk_far", "it occurs twice", old="walk", new="run"), ["-walk", "+run"]),
        (Edit("visibility", "walk_far", public=False), []),
    ],
)
def test_an_edit_that_cannot_be_made_shows_the_texts_that_it_has(edit: Edit, lines: list[str]) -> None:
    (shown,) = show_edits(read_text(WALK), [edit])
    assert [line for diff in shown.diffs for line in diff.lines if line[0] in "+-"] == lines
