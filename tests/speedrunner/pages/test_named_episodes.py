"""The episodes that a sleep's record names."""

from __future__ import annotations

from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.pages.named_episodes import NamedEpisode, find_evidence
from speedrunner.store.records import AgentRecord, CallNode, Message, SleepRecord, Termination, Turn

KNOWN = [f"train/{number:04d}" for number in range(10)]


def record(*turns: Turn) -> SleepRecord:
    agents = [AgentRecord("inducer", list(turns), Termination.SUBMITTED)]
    return SleepRecord(sleep=1, rollouts=10, attempt=1, agents=agents, edits=[], seconds=1.0)


def run_code(code: str, printed: str, *messages: Message) -> Turn:
    executed = CallNode("execute_code", "tool", {"code": code}, printed)
    return Turn(
        [*messages], "", Usage(), 0.1, call=ToolCall("execute_code", {"code": code}), executed=executed
    )


def test_prompts_calls_and_outputs_are_told_apart() -> None:
    prompt = Message("user", "train/0001: success\ntrain/0002: call_limit")
    found = find_evidence(
        record(
            run_code("show(load('train/0002'))", "it walks", prompt),
            run_code("x", "train/0002: call_limit\ntrain/0005: success", Message("tool", "train/0009")),
        ),
        KNOWN,
    )
    assert found.named == [
        NamedEpisode("train/0001", True, []),
        NamedEpisode("train/0002", True, [1, 2]),
        NamedEpisode("train/0005", False, [2]),
    ]
    assert [each.episode for each in found.read] == ["train/0002", "train/0005"]


def test_code_that_loads_episodes_is_noted_without_naming_any() -> None:
    found = find_evidence(record(run_code("1 + 1", "2"), run_code("len(load_trajectories())", "10")), KNOWN)
    assert (found.named, found.loading) == ([], [2])


def test_what_only_looks_like_a_known_key_is_no_evidence() -> None:
    printed = "strain/0001 /train/0002 train/00031 train/0099 test/0000/0004"
    assert find_evidence(record(run_code("print(1)", printed)), KNOWN).named == []
