"""Trees of calls: equal ones are one, long ones end."""

from __future__ import annotations

from speedrunner.pages.turns import CALLS, Room, show_calls
from speedrunner.store.records import CallNode
from tests.page_elements import Elements


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
    assert (tree.is_cut, tree.unrecorded) == (True, 5)


def test_texts_of_several_lines_are_folded() -> None:
    tree = show_calls(CallNode("execute_code", "tool", {"code": "a = 1\nprint(a)", "n": 2}, "1"))
    assert tree.call == "execute_code(code=…, n=2)"
    assert Elements(tree.texts["code"]).text == "a = 1\nprint(a)\n"


def test_a_long_argument_is_folded() -> None:
    tree = show_calls(CallNode("go", "skill", {"path": [*range(40)], "far": True}))
    assert tree.call == "go(path=…, far=True)"
    assert Elements(tree.texts["path"]).text.strip() == repr([*range(40)])


def test_texts_are_cut_when_a_page_has_no_room_left() -> None:
    calls = [CallNode("note", "skill", {"text": f"{n}" * 400}, "done") for n in range(3)]
    room = Room(chars=500)
    tree = show_calls(CallNode("all", "skill", {}, calls=calls), room)
    lengths = [len(Elements(each.texts["text"]).text) for each in tree.below]
    assert lengths[0] > 400 > lengths[1]
    assert room.cut


def test_a_chain_of_calls_is_counted_at_each_level() -> None:
    node = CallNode("go_forward", "primitive", {}, "a wall")
    for _ in range(90):
        node = CallNode("walk", "skill", {}, calls=[node])
    shown, calls = show_calls(node), []
    while shown.below:
        calls.append(shown.calls)
        shown = shown.below[0]
    assert calls == [*range(90, 0, -1)]


def test_an_error_stands_for_a_result() -> None:
    tree = show_calls(CallNode("walk", "skill", {}, error="ValueError: far"))
    assert (tree.failed, tree.came) == (True, "ValueError: far")
