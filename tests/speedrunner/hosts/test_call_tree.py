"""The host's record of a tool call, whatever the skills' process says of it."""

from __future__ import annotations

import msgspec

from speedrunner.hosts.call_tree import ERROR_LIMIT, NOT_KEPT, CallTree
from speedrunner.sandbox.child.bounds import DEPTH_LIMIT, NODE_LIMIT, TEXT_LIMIT


def tree() -> CallTree:
    return CallTree("go", "skill", {"n": 1})


def test_calls_stand_below_the_one_that_is_running_in_their_order() -> None:
    recorded = tree()
    inner = recorded.begin("inner", "skill", {})
    look = recorded.begin("look", "primitive", {})
    assert (inner, look) == (1, 2)
    recorded.end(2, "a wall", None)
    recorded.end(1, None, "ValueError: no door")
    recorded.begin("walk", "primitive", {"steps": 2})
    recorded.count_action()
    recorded.end(1, "moved", None)
    recorded.end(0, True, None)
    root = recorded.root
    assert (root.name, root.arguments, root.result, root.actions) == ("go", {"n": 1}, True, 1)
    assert [(each.name, each.actions) for each in root.calls] == [("inner", 0), ("walk", 1)]
    assert root.calls[0].error == "ValueError: no door"
    assert root.calls[0].calls[0].result == "a wall"


def test_calls_that_did_not_say_how_they_ended_share_the_error_of_the_one_above() -> None:
    recorded = tree()
    recorded.begin("inner", "skill", {})
    recorded.end(0, None, "TimeLimitReached: stopped")
    assert recorded.root.calls[0].error == "TimeLimitReached: stopped"


def test_ends_of_calls_that_were_not_recorded_are_no_ends_of_others() -> None:
    recorded = tree()
    recorded.begin("inner", "skill", {})
    recorded.end(7, "forged", None)
    recorded.end(1, "true", None)
    assert recorded.root.calls[0].result == "true"


def test_depth_and_number_are_bounded_but_not_for_actions() -> None:
    recorded = tree()
    depths = [recorded.begin("inner", "skill", {}) for _ in range(DEPTH_LIMIT + 10)]
    assert depths.count(None) == 11
    assert recorded.begin("walk", "primitive", {}, always=True) == DEPTH_LIMIT
    recorded.end(1, None, None)
    for _ in range(NODE_LIMIT):
        if (depth := recorded.begin("look", "primitive", {})) is not None:
            recorded.end(depth, None, None)
    assert recorded.root.omitted > 0
    assert recorded.begin("walk", "primitive", {}, always=True) == 1


def test_values_are_kept_whole_then_described_then_left_out() -> None:
    recorded = tree()
    text = "x" * (TEXT_LIMIT // 4)
    for _ in range(NODE_LIMIT - 1):
        recorded.begin("note", "skill", {"text": text})
        recorded.end(1, text, None)
    recorded.end(0, None, None)
    first, last = recorded.root.calls[0], recorded.root.calls[-1]
    assert first.arguments == {"text": text}
    assert last.result == NOT_KEPT
    assert len(msgspec.json.encode(recorded.root)) < 2 * TEXT_LIMIT + 300 * NODE_LIMIT


def test_long_errors_are_cut_and_say_so() -> None:
    recorded = tree()
    recorded.end(0, None, "x" * (ERROR_LIMIT + 5))
    assert (recorded.root.error or "").endswith("... 5 more characters ...")
