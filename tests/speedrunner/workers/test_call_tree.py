"""The worker's record of a tool call, whatever the skills' process says of it."""

from __future__ import annotations

import msgspec
import pytest

from speedrunner.store.files import RECORD_BYTES
from speedrunner.workers.call_tree import (
    CALL_CHARS,
    EPISODE_LIMIT,
    ERROR_LIMIT,
    NOT_KEPT,
    TOOL_CALL_CHARS,
    CallTree,
    EpisodeRoom,
)
from speedrunner.workers.sandbox.child.values import (
    DEPTH_LIMIT,
    DESCRIPTION_LIMIT,
    NODE_LIMIT,
    TEXT_LIMIT,
    VALUE_CHARS,
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


def test_actions_have_a_number_of_their_own() -> None:
    recorded = tree()
    for _ in range(NODE_LIMIT):
        primitive(recorded, "look")
    for _ in range(NODE_LIMIT + 10):
        primitive(recorded, "walk", acted=True)
    root = recorded.root
    assert sum(node.name == "walk" for node in root.calls) == NODE_LIMIT
    assert (root.actions, root.omitted) == (NODE_LIMIT + 10, 11)


def size(recorded: CallTree) -> int:
    return len(msgspec.json.encode(recorded.root))


def test_values_are_kept_whole_then_described_then_left_out() -> None:
    recorded = tree()
    text = "x" * (TEXT_LIMIT // 4)
    for _ in range(NODE_LIMIT - 1):
        recorded.begin("note", {"text": text})
        recorded.end(1, text, None)
    recorded.end(0, None, None)
    first, last = recorded.root.calls[0], recorded.root.calls[-1]
    assert first.arguments == {"text": text}
    assert last.result == f"{NOT_KEPT}: {len(text) + VALUE_CHARS} characters>"
    assert size(recorded) < 2 * TEXT_LIMIT + 300 * NODE_LIMIT


def test_errors_are_kept_whole_then_described_then_left_out() -> None:
    recorded = tree()
    text = "x" * ERROR_LIMIT
    for _ in range(NODE_LIMIT - 1):
        recorded.begin("fail", {})
        recorded.end(1, None, text)
    recorded.end(0, None, text)
    errors = [node.error or "" for node in recorded.root.calls]
    full = TEXT_LIMIT // ERROR_LIMIT - 1  # the tool call's argument has taken some
    assert errors[0] == recorded.root.error == text
    assert len(errors[full - 1]) == ERROR_LIMIT
    assert len(errors[full]) < 2 * DESCRIPTION_LIMIT
    assert errors[-1] == f"{NOT_KEPT}: {ERROR_LIMIT} characters>"
    assert size(recorded) < 2 * TEXT_LIMIT + 300 * NODE_LIMIT


class TestAnEpisode:
    CALLS = 12
    LONG = "\x01" * (TEXT_LIMIT // 4)
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
        assert total < EPISODE_LIMIT + 6 * (TEXT_LIMIT + self.CALLS * TOOL_CALL_CHARS) < RECORD_BYTES

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

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param("\U0001f600" * 900_000, id="text"),
            pytest.param([[]] * 40_000, id="lists", marks=pytest.mark.slow),
            pytest.param([{}] * 40_000, id="objects", marks=pytest.mark.slow),
            pytest.param([{"": 0}] * 20_000, id="members", marks=pytest.mark.slow),
            pytest.param(["\U0001f600"] * 40_000, id="short texts", marks=pytest.mark.slow),
        ],
    )
    def test_can_be_read_again_whatever_it_records(self, value: object) -> None:
        episode, calls = EpisodeRoom(), []
        while episode.left > 0:
            recorded = tree(episode)
            for _ in range(NODE_LIMIT // 4):
                primitive(recorded, "walk", acted=True)
            for _ in range(3):
                recorded.begin("note", {"value": value})
                recorded.end(1, value, None)
            recorded.end(0, value, None)
            calls.append(recorded.root)
        record = msgspec.json.encode(calls)
        assert len(record) < RECORD_BYTES * 3 // 4  # and what models and actors said

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
