"""The scripted inducer: what it does follows from what was played; what it leaves solves what is held out."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

import envs
from models.tiny.teachers.recorded_sleeps import RunSettings, play
from models.tiny.teachers.scripted_inducer import (
    BOTH,
    LOOK,
    ORDER,
    SOURCES,
    find_parts,
    make_policy,
    session,
)
from serving.tokens.tools import ToolCall
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.store.run_data import RunData

REPORT = {
    **{"episodes": 10, "solved": 6, "then": 5, "then, failed": 2, "after you": 5, "after you, failed": 2},
    **{"not understood": 0, "in the way": 0, "not in sight": 0, "solved in several calls": 0},
    "after you, ended by going": 3,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """Four sleeps after ten rollouts each, from nothing, and ten held-out worlds."""
    return asyncio.run(play(RunSettings("a", held_out=10), tmp_path_factory.mktemp("run") / "run"))


@cache
def library(*parts: str) -> Library:
    return Library(envs.make("babyai").primitives).of(make_policy(parts))


def work(seed: int, *parts: str, **facts: int) -> Iterator[ToolCall]:
    """The calls of a sleep with a library of these parts, after a report of these facts."""
    source = f"```python\n{library(*parts).annotated_source()}\n```"
    report = "\n".join(f"{words}: {number}" for words, number in ({**REPORT, **facts}).items())
    agent = session(source, ["execute_code"], random.Random(seed))
    _, call = next(agent)
    yield call
    while call.name != "finish":
        _, call = agent.send(report)
        yield call


def added(calls: Iterator[ToolCall], *parts: str) -> set[str]:
    """What a sleep's edits add to a library of these parts; those that are refused add nothing."""
    edited = library(*parts)
    for call in calls:
        given = {key: value for key, value in call.arguments.items() if key != "public"}
        try:
            if call.name == "write_skill":
                edited = edited.write(**given, sleep=2)
            elif call.name == "edit_skill":
                edited = edited.edit(**given, sleep=2)
        except InvalidSkill:
            continue
    return find_parts(edited.source) - set(parts)


@pytest.mark.slow
@pytest.mark.process
class TestARun:
    def test_ends_with_a_library_that_solves_what_is_held_out_in_one_call_each(self, run: RunData) -> None:
        played = run.evaluations(40)
        at_once = [each for each in played if each.outcome and each.outcome.success and len(each.turns) == 1]
        assert len(played) == 10
        assert len(at_once) >= 9

    def test_plays_no_world_of_either_split(self, run: RunData) -> None:
        split = envs.splits("babyai")
        trained = {each.task for each in run.trajectories()}
        assert len(trained) == 40
        assert not trained.intersection(split.train + split.test)

    def test_is_the_same_for_the_same_seed(self, tmp_path: Path) -> None:
        def sessions(folder: str) -> list[object]:
            data = asyncio.run(play(RunSettings("b", batch=2), tmp_path / folder))
            turns = [turn for sleep in data.sleeps for agent in sleep.agents for turn in agent.turns]
            return [msgspec.to_builtins((turn.messages, turn.reasoning, turn.call)) for turn in turns]

        assert sessions("one") == sessions("two")


class TestDecisions:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize(
        ("symptom", "part"),
        [("in the way", "route"), ("not in sight", "search"), ("not understood", "parse")],
    )
    def test_a_failure_is_mended_where_it_was_seen(self, symptom: str, part: str, seed: int) -> None:
        assert added(work(seed, "whole"), "whole") == set()
        assert added(work(seed, "whole", **{symptom: 1}), "whole") == {part}

    def test_a_whole_mission_becomes_one_call_once_missions_took_several(self) -> None:
        assert added(work(0, **{"solved in several calls": 4})) == {"whole", "parse"}

    def test_the_other_wording_is_read_only_where_its_order_was_seen(self) -> None:
        seen = {"solved in several calls": 4, "after you, ended by going": 0}
        assert added(work(0, **seen)) == {"whole"}

    def test_one_sleep_adds_two_parts_at_most(self) -> None:
        seen = {"solved in several calls": 4, "in the way": 1, "not in sight": 3}
        assert added(work(0, **seen)) - {"parse"} == {"whole", "route"}


def test_some_edits_are_refused_and_then_mended() -> None:
    calls = [[*work(seed, **{"not in sight": 1})] for seed in range(40)]
    lengths = {len(each) for each in calls}
    assert lengths == {3, 4}
    assert all(added(iter(each)) == {"search"} for each in calls)


def test_lines_are_the_same_in_json() -> None:
    for text in (*SOURCES.values(), LOOK, ORDER, BOTH):
        assert json.dumps(text) == '"' + text.replace("\n", "\\n") + '"'
