"""Trees of calls, in which long ones end and long texts are folded, and edits as diffs."""

from __future__ import annotations

import pytest

from speedrunner.library.library import Library
from speedrunner.pages.shown_code import (
    CALLS,
    Diff,
    compare_libraries,
    count_calls,
    describe_edit,
    describe_result,
    limit_calls,
    list_texts,
    write_call,
)
from speedrunner.store.records import CallNode, Edit, Policy, Skill


def test_of_very_many_calls_the_first_are_shown_and_the_rest_counted() -> None:
    many = [CallNode("go_forward", "primitive", {}, f"field {n}", actions=1) for n in range(CALLS + 100)]
    tree = limit_calls(CallNode("walk", "skill", {"steps": 3}, None, calls=many, omitted=5))
    assert (write_call(tree, ()), describe_result(tree.calls[1])) == ("walk(steps=3)", "field 1")
    assert (len(tree.calls), count_calls(tree), tree.omitted) == (CALLS, CALLS + 105, 105)


def test_long_arguments_and_texts_of_several_lines_are_folded() -> None:
    tree = CallNode("execute_code", "tool", {"code": "a = 1", "n": 2}, "1")
    texts = list_texts(tree)
    assert (write_call(tree, texts), texts) == ("execute_code(code=…, n=2)", {"code": "a = 1"})
    tree = CallNode("go", "skill", {"path": [*range(40)], "far": True}, error="ValueError: far")
    assert (texts := list_texts(tree)) == {"path": repr([*range(40)])}
    assert (write_call(tree, texts), describe_result(tree)) == ("go(path=…, far=True)", "ValueError: far")


WALK = 'def walk_far() -> str:\n    """Walk."""\n    return walk()'
LOOK = WALK.replace("walk()", "look()")


def library(module: str) -> Library:
    skills = (Skill(name="walk_far", public=True, created=0, edited=0),) if module else ()
    return Library(()).of(Policy(version=0, module=module, skills=skills))


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (Edit("write", "go", source="x = 1"), "write go"),
        (Edit("edit", "walk_far", "refused", old="one", new="two"), "edit walk_far"),
        (Edit("rename", "walk_far", new_name="run"), "rename walk_far to run"),
        (Edit("visibility", "walk_far", public=False), "make walk_far private"),
    ],
)
def test_an_edit_has_its_action_and_names(edit: Edit, what: str) -> None:
    assert describe_edit(edit) == what


def test_libraries_differ_by_shared_code_and_functions() -> None:
    (added,) = compare_libraries(library(""), library(WALK))
    assert added == Diff("walk_far", ["@@ -0,0 +1,3 @@", *(f"+{line}" for line in WALK.split("\n"))], 3, 0)
    changes = compare_libraries(library(WALK), library(f"SIDES = 4\n\n\n{LOOK}"))
    assert [(diff.name, diff.added, diff.removed) for diff in changes] == [
        ("shared code", 1, 0),
        ("walk_far", 1, 1),
    ]
