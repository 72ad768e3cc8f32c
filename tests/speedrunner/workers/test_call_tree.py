"""The worker's record of a tool call, whatever the skills' process says of it."""

from __future__ import annotations

import msgspec
import pytest

from speedrunner.store.files import RECORD_BYTES
from speedrunner.workers.call_tree import (
    CALL_CHARS,
    CALL_LIMIT,
    EPISODE_LIMIT,
    ERROR_LIMIT,
    NOT_KEPT,
    TOOL_CALL_CHARS,
    CallTree,
    EpisodeRoom,
)
from speedrunner.workers.sandbox.child.values import (
    DEPTH_LIMIT,
    NODE_LIMIT,
    VALUE_CHARS,
    VALUE_LIMIT,
)


def tree(episode: EpisodeRoom | None = None) -> CallTree:
    return CallTree("go", "skill", {"n": 1}, episode or EpisodeRoom())


def primitive(recorded: CallTree, name: str, error: str | None = None, *, acted: bool = False) -> None:
    recorded.add(name, {}, None if error else "a wall", error, seconds=0.5, acted=acted)


def test_calls_stand_below_the_one_that_is_running_in_their_order() -> None:
    recorded = tree()
    recorded.begin("inner", {})
    primitive(recorded, "look")
    recorded.end(1, None, "ValueError: no door")
    primitive(recorded, "walk", acted=True)
    recorded.end(0, True, None)
    root = recorded.root
    assert (root.name, root.arguments, root.result, root.actions) == ("go", {"n": 1}, True, 1)
    assert [(node.name, node.kind, node.actions) for node in root.calls] == [
        ("inner", "skill", 0),
        ("walk", "primitive", 1),
    ]
    assert root.calls[0].error == "ValueError: no door"
    look = root.calls[0].calls[0]
    assert (look.result, look.error, look.actions, look.seconds) == ("a wall", None, 0, 0.5)


def test_calls_that_did_not_say_how_they_ended_share_the_error_of_the_one_above() -> None:
    recorded = tree()
    recorded.begin("inner", {})
    recorded.end(0, None, "TimeLimitReached: stopped")
    assert recorded.root.calls[0].error == "TimeLimitReached: stopped"


def test_depth_is_bounded_but_not_for_actions() -> None:
    recorded = tree()
    for _ in range(DEPTH_LIMIT + 10):
        recorded.begin("inner", {})
    primitive(recorded, "look")
    primitive(recorded, "walk", acted=True)
    depth, node = 0, recorded.root
    while node.calls:
        depth, node = depth + 1, node.calls[-1]
    assert (depth, node.name) == (DEPTH_LIMIT, "walk")
    recorded.end(1, None, None)
    assert recorded.root.calls[0].actions == 1


@pytest.mark.parametrize("error", [None, "InvalidPrimitiveCall: no"])
def test_calls_that_change_nothing_are_counted_beyond_their_number(error: str | None) -> None:
    recorded = tree()
    for _ in range(NODE_LIMIT + 10):
        primitive(recorded, "look", error)
    root = recorded.root
    assert (len(root.calls), root.omitted) == (NODE_LIMIT - 1, 11)
    recorded.begin("inner", {})
    assert root.omitted == 12


def test_actions_are_recorded_beyond_that_number() -> None:
    recorded = tree()
    for _ in range(NODE_LIMIT):
        primitive(recorded, "look")
    primitive(recorded, "walk", acted=True)
    assert (recorded.root.calls[-1].name, recorded.root.actions, recorded.root.omitted) == ("walk", 1, 1)


def size(recorded: CallTree) -> int:
    return len(msgspec.json.encode(recorded.root))


def test_a_call_leaves_room_for_later_ones() -> None:
    episode = EpisodeRoom()
    recorded, text = tree(episode), "x" * ERROR_LIMIT
    for _ in range(CALL_LIMIT // ERROR_LIMIT + 1):
        recorded.begin("fail", {})
        recorded.end(1, None, text)
    assert (recorded.root.calls[0].error, recorded.root.calls[-1].error) == (text, NOT_KEPT)
    later = tree(episode)
    later.end(0, text, None)
    assert later.root.result == text


class TestAnEpisode:
    CALLS = 12
    LONG = "\x01" * (VALUE_LIMIT - VALUE_CHARS)
    """Six bytes of JSON for each character."""

    def test_records_a_bounded_number_of_characters(self) -> None:
        episode, total = EpisodeRoom(), 0
        for _ in range(self.CALLS):
            recorded = tree(episode)
            for _ in range(8):
                recorded.begin("note", {"text": self.LONG})
                recorded.end(1, self.LONG, None)
            recorded.end(0, self.LONG, None)
            total += size(recorded)
        assert total < EPISODE_LIMIT + 6 * (2 * VALUE_LIMIT + self.CALLS * TOOL_CALL_CHARS) < RECORD_BYTES

    def test_records_a_bounded_number_of_calls(self) -> None:
        episode, total = EpisodeRoom(), 0
        for _ in range(self.CALLS):
            recorded = tree(episode)
            for _ in range(NODE_LIMIT):
                primitive(recorded, "walk", acted=True)
            total += size(recorded)
            assert recorded.root.actions == NODE_LIMIT
            assert len(recorded.root.calls) + recorded.root.omitted == NODE_LIMIT
        assert total < EPISODE_LIMIT + self.CALLS * TOOL_CALL_CHARS

    def test_keeps_what_the_actor_asked_for_and_reads_after_its_bound(self) -> None:
        recorded = CallTree("go", "skill", {"n": "x" * 5_000}, episode := EpisodeRoom(0))
        recorded.begin("inner", {})
        primitive(recorded, "walk", acted=True)
        recorded.end(0, "x" * (TOOL_CALL_CHARS - VALUE_CHARS), None)
        root = recorded.root
        assert root.arguments == {"n": "x" * 5_000}
        assert root.result == "x" * (TOOL_CALL_CHARS - VALUE_CHARS)
        assert (root.calls, root.omitted, root.actions) == ([], 2, 1)
        failed = tree(episode)
        failed.end(0, None, "x" * ERROR_LIMIT)
        assert (failed.root.error or "").startswith("x" * TOOL_CALL_CHARS)
        assert len(failed.root.error or "") < TOOL_CALL_CHARS + CALL_CHARS
