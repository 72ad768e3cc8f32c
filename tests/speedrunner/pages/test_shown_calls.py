"""Trees of calls: equal ones are one, long ones end."""

from __future__ import annotations

from speedrunner.pages.shown_calls import CALLS, show_calls
from speedrunner.store.records import CallNode
from tests.page_elements import Elements


def step(text: str = "a wall") -> CallNode:
    return CallNode("go_forward", "primitive", {}, text, actions=1)


def test_equal_calls_in_a_row_are_one_unless_they_made_others() -> None:
    tree = show_calls(
        CallNode("walk", "skill", {"steps": 3}, "done", calls=[step(), step(), step("a key"), step()])
    )
    assert [(each.times, each.result) for each in tree.below] == [(2, "a wall"), (1, "a key"), (1, "a wall")]
    assert (tree.call, tree.result, tree.calls, tree.hidden) == ("walk(steps=3)", "done", 4, 0)
    walk = CallNode("walk", "skill", {}, None, calls=[step()])
    twice = show_calls(CallNode("twice", "skill", {}, None, calls=[walk, walk]))
    assert [each.times for each in twice.below] == [1, 1]


def test_of_very_many_calls_the_first_are_shown_and_the_rest_counted() -> None:
    many = [step(f"field {n}") for n in range(CALLS + 100)]
    tree = show_calls(CallNode("walk", "skill", {}, None, calls=many, omitted=5))
    assert (len(tree.below), tree.calls, tree.hidden) == (CALLS, CALLS + 105, 105)


def test_long_arguments_and_texts_of_several_lines_are_folded() -> None:
    tree = show_calls(CallNode("execute_code", "tool", {"code": "a = 1\nprint(a)", "n": 2}, "1"))
    assert tree.call == "execute_code(code=…, n=2)"
    assert Elements(tree.texts["code"]).text == "a = 1\nprint(a)\n"
    tree = show_calls(CallNode("go", "skill", {"path": [*range(40)], "far": True}, error="ValueError: far"))
    assert Elements(tree.texts["path"]).text.strip() == repr([*range(40)])
    assert (tree.call, tree.failed, tree.result) == ("go(path=…, far=True)", True, "ValueError: far")
