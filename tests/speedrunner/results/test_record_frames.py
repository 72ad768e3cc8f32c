"""Frames of requests, turns, calls and skills, of a run that the real machinery played and of a small one."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from serving.usage import Prices, Usage
from speedrunner.results.pricing import PriceBook
from speedrunner.results.record_frames import RecordTable, frame_records
from speedrunner.store.records import CallNode, Policy, Turn
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.scripted_runs import ScriptedRun
from tests.speedrunner.results.ledgers import play, row
from tests.speedrunner.run_samples import sleep, trajectory


@pytest.fixture
def small(tmp_path: Path) -> RunDirectory:
    """A run without an episode, to which more can be appended as long as nobody else wants it."""
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config("run: {}\n")
        run.write_policy(Policy(version=0))
        return run


def frame(data: RunData, table: RecordTable) -> pandas.DataFrame:
    """Return a table in which a generated token costs a cent."""
    models = dict.fromkeys((row.model for row in data.requests), Prices(0, 0, 10_000))
    return frame_records(data, table, PriceBook("a cent", models))


def with_a_failed_request(small: RunDirectory) -> RunData:
    """A run with an episode, a request of it that failed, and a sleep."""
    with RunDirectory.open_for_writing(small.path) as run:
        play(run, "train/0000", Usage(9, 4, 2, 1))
        run.append_request(row(1.0, None, status="failed", episode="train/0000", attempt="1"))
        run.write_sleep(sleep())
    return load(small.path)


def test_usd_are_those_of_the_tokens_and_missing_if_unknown(small: RunDirectory) -> None:
    data = with_a_failed_request(small)
    assert frame(data, "requests")["usd"].dropna().tolist() == [0.02]
    turns = frame(data, "turns")
    assert turns["usd"].tolist() == (turns["usage_completion"] / 100).tolist()


def test_a_sleep_s_turns_have_its_key_and_their_agent_s_role(learnt: ScriptedRun) -> None:
    turns = frame(learnt.data, "turns")
    asleep = turns[turns["phase"] == "sleep"]
    assert asleep["episode"].unique().tolist() == ["sleep/0001", "sleep/0002"]
    assert asleep["role"].unique().tolist() == ["inducer"]
    assert asleep["policy"].unique().tolist() == [0, 1]
    assert asleep["checkpoint"].isna().all()
    assert asleep["call"].tolist() == ["write_skill", "finish", "write_skill", "finish"]


def test_the_calls_of_a_skill_name_their_caller(learnt: ScriptedRun) -> None:
    calls = frame(learnt.data, "calls")
    one = calls[calls["episode"] == "test/0002/0000"]
    assert one[["turn", "call", "depth", "name", "kind", "actions"]].values.tolist() == [
        [1, 0, 0, "to_flag", "skill", 1],
        [1, 1, 1, "look", "primitive", 0],
        [1, 2, 1, "walk", "primitive", 1],
    ]
    assert one["parent"].isna().tolist() == [True, False, False]
    assert one["parent"].tolist()[1:] == [0, 0]
    assert one["arguments"].tolist() == ["{}", "{}", '{"steps":7}']
    assert one["result"].tolist()[2] == "You are at the flag."


def test_calls_of_any_depth_are_numbered_callers_first(small: RunDirectory) -> None:
    step = CallNode("step", "primitive", {}, None, error="a wall")
    node = CallNode("a", "skill", {}, [1, 2], calls=[CallNode("b", "skill", {}, calls=[step]), step])
    turns = [Turn(messages=[], text="", usage=Usage(), seconds=0.0, executed=node)] * 2
    with RunDirectory.open_for_writing(small.path) as run:
        run.append_trajectory("train", 0, trajectory(turns=turns))
    calls = frame(load(small.path), "calls")
    one = calls[calls["turn"] == 2]
    assert one["name"].tolist() == ["a", "b", "step", "step"]
    assert one["depth"].tolist() == [0, 1, 2, 1]
    assert one["parent"].tolist()[1:] == [0, 1, 0]
    assert one["result"].tolist()[0] == "[1,2]"
    assert one["error"].isna().tolist() == [True, True, False, False]
