"""Trees of calls: long ones end, long texts are folded."""

from __future__ import annotations

from speedrunner.pages.shown_calls import CALLS, show_calls
from speedrunner.store.records import CallNode
from tests.page_elements import Elements


def test_of_very_many_calls_the_first_are_shown_and_the_rest_counted() -> None:
    many = [CallNode("go_forward", "primitive", {}, f"field {n}", actions=1) for n in range(CALLS + 100)]
    tree = show_calls(CallNode("walk", "skill", {"steps": 3}, None, calls=many, omitted=5))
    assert (tree.call, tree.below[1].result) == ("walk(steps=3)", "field 1")
    assert (len(tree.below), tree.calls, tree.hidden) == (CALLS, CALLS + 105, 105)


def test_long_arguments_and_texts_of_several_lines_are_folded() -> None:
    tree = show_calls(CallNode("execute_code", "tool", {"code": "a = 1\nprint(a)", "n": 2}, "1"))
    assert tree.call == "execute_code(code=…, n=2)"
    assert Elements(tree.texts["code"]).text == "a = 1\nprint(a)\n"
    tree = show_calls(CallNode("go", "skill", {"path": [*range(40)], "far": True}, error="ValueError: far"))
    assert Elements(tree.texts["path"]).text.strip() == repr([*range(40)])
    assert (tree.call, tree.failed, tree.result) == ("go(path=…, far=True)", True, "ValueError: far")
