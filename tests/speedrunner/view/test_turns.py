"""Trees of calls: equal ones are one, long ones end."""

from __future__ import annotations

from speedrunner.store.records import CallNode
from speedrunner.view.turns import CALLS, show_calls


def step(text: str = "a wall") -> CallNode:
    return CallNode("go_forward", "primitive", {}, text, actions=1)


def test_equal_calls_in_a_row_are_one() -> None:
    tree = show_calls(
        CallNode("walk", "skill", {"steps": 3}, "done", calls=[step(), step(), step("a key"), step()])
    )
    assert [(each.times, each.came) for each in tree.below] == [(2, "a wall"), (1, "a key"), (1, "a wall")]
    assert (tree.call, tree.came, tree.calls, tree.hidden) == ("walk(steps=3)", "done", 4, 0)


def test_calls_that_made_others_stay_apart() -> None:
    walk = CallNode("walk", "skill", {}, None, calls=[step()])
    assert [
        each.times for each in show_calls(CallNode("twice", "skill", {}, None, calls=[walk, walk])).below
    ] == [
        1,
        1,
    ]


def test_of_very_many_calls_the_first_are_shown_and_the_rest_counted() -> None:
    many = [step(f"field {n}") for n in range(CALLS + 100)]
    tree = show_calls(CallNode("walk", "skill", {}, None, calls=many, omitted=5))
    assert (len(tree.below), tree.calls, tree.hidden) == (CALLS, CALLS + 105, 105)


def test_texts_of_several_lines_stand_apart() -> None:
    tree = show_calls(CallNode("execute_code", "tool", {"code": "a = 1\nprint(a)", "n": 2}, "1"))
    assert tree.call == "execute_code(code=…, n=2)"
    assert tree.texts == {"code": "a = 1\nprint(a)"}


def test_an_error_stands_for_a_result() -> None:
    tree = show_calls(CallNode("walk", "skill", {}, error="ValueError: far"))
    assert (tree.failed, tree.came) == (True, "ValueError: far")
