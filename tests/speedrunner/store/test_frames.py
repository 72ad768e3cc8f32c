"""Data frames of a run that the real machinery played, of a small one, and of an empty one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args

import pandas
import pytest

from serving.model_configs import CHECKOUT
from serving.usage import Usage
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.store.frames import Table
from speedrunner.store.records import CallNode, Policy, Turn
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.scripted_runs import ScriptedRun
from tests.speedrunner.results.ledgers import play, row
from tests.speedrunner.run_samples import sleep, trajectory

TABLES: tuple[Table, ...] = get_args(Table)
TOKENS = ["usage_prompt", "usage_cached", "usage_completion", "usage_reasoning"]


@pytest.fixture
def small(tmp_path: Path) -> RunDirectory:
    """A run without an episode, to which more can be appended as long as nobody else wants it."""
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config("run: {}\n")
        run.write_policy(Policy(version=0))
        return run


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_run_has_the_columns_of_a_full_one_and_their_types(
    learnt: ScriptedRun, small: RunDirectory, table: Table
) -> None:
    full, empty = learnt.data.frame(table), load(small.path).frame(table)
    assert len(full) > 0
    assert len(empty) == 0
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()
    assert not any(isinstance(value, dict | list) for value in full.to_numpy().flatten())


def test_one_row_for_each_thing(learnt: ScriptedRun) -> None:
    data = learnt.data
    turns = [turn for each in (*data.trajectories(), *data.evaluations()) for turn in each.turns]
    asleep = [turn for record in data.sleeps for agent in record.agents for turn in agent.turns]
    lengths = {table: len(data.frame(table)) for table in TABLES}
    assert lengths["episodes"] == len(data.episodes)
    assert lengths["requests"] == len(data.requests)
    assert lengths["turns"] == len(turns) + len(asleep)
    assert (lengths["sleeps"], lengths["skills"]) == (2, 2)


def test_labels_are_typed_as_the_columns_of_episodes(learnt: ScriptedRun) -> None:
    requests, episodes = learnt.data.frame("requests"), learnt.data.frame("episodes")
    for name in ("policy", "attempt", "replica"):
        assert pandas.api.types.is_integer_dtype(requests[f"labels_{name}"]), name
    joined = episodes.merge(
        requests,
        left_on=["episode", "attempt", "policy", "phase"],
        right_on=[f"labels_{name}" for name in ("episode", "attempt", "policy", "phase")],
    )
    assert len(joined) == episodes["llm_calls"].sum()


def test_turns_add_up_to_their_episodes_and_sleeps(learnt: ScriptedRun) -> None:
    data = learnt.data
    by_episode = data.frame("turns").groupby("episode")
    sums = by_episode[[*TOKENS, "usd", "actions"]].sum()
    episodes = data.frame("episodes").set_index("episode")
    for name in ("phase", "checkpoint", "policy", "attempt"):
        assert by_episode[name].unique()[episodes.index].map(list).tolist() == [
            [value] for value in episodes[name]
        ], name
    for name in (*TOKENS, "usd", "actions"):
        assert sums.loc[episodes.index, name].tolist() == pytest.approx(episodes[name].tolist()), name
    sleeps = data.frame("sleeps")
    asleep = sums.loc[[f"sleep/{number:04d}" for number in sleeps["sleep"]]]
    for name in (*TOKENS, "usd"):
        assert asleep[name].tolist() == pytest.approx(sleeps[name].tolist()), name


def test_usd_are_those_of_the_costs(learnt: ScriptedRun) -> None:
    data = learnt.data
    (costs,) = run_costs([data], [price_book(data)])
    found = data.frame("episodes").set_index("episode")["usd"].to_dict()
    assert min(found.values()) > 0
    assert found == pytest.approx({key: costs.episodes[key].useful_usd for key in found})
    assert data.frame("requests")["usd"].sum() == pytest.approx(costs.total.usd)


def test_without_prices_usd_are_missing_and_everything_else_stays(
    learnt: ScriptedRun, tmp_path: Path
) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    (run / "processes.jsonl").unlink()
    for table in ("episodes", "requests", "turns", "sleeps"):
        without, usual = load(run).frame(table), learnt.data.frame(table)
        assert without["usd"].isna().all()
        pandas.testing.assert_frame_equal(without.drop(columns="usd"), usual.drop(columns="usd"))


def test_a_sleep_s_turns_have_its_key_and_their_agent_s_role(learnt: ScriptedRun) -> None:
    turns = learnt.data.frame("turns")
    asleep = turns[turns["phase"] == "sleep"]
    assert asleep["episode"].unique().tolist() == ["sleep/0001", "sleep/0002"]
    assert asleep["role"].unique().tolist() == ["inducer"]
    assert asleep["policy"].unique().tolist() == [0, 1]
    assert asleep["checkpoint"].isna().all()
    assert asleep["call"].tolist() == ["write_skill", "finish", "write_skill", "finish"]


def test_edits_of_a_sleep_are_counted(learnt: ScriptedRun) -> None:
    sleeps = learnt.data.frame("sleeps")
    assert sleeps["accepted"].tolist() == [1, 0]
    assert sleeps["rollouts"].tolist() == [2, 2]


def test_skills_stand_once_for_each_version_that_has_them(learnt: ScriptedRun) -> None:
    rows = learnt.data.frame("skills").to_dict("records")
    assert rows == [
        {"policy": version, "name": "to_flag", "public": True, "created": 1, "edited": 1}
        for version in (1, 2)
    ]


def test_the_calls_of_a_skill_name_their_caller(learnt: ScriptedRun) -> None:
    calls = learnt.data.frame("calls")
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
    calls = load(small.path).frame("calls")
    one = calls[calls["turn"] == 2]
    assert one["name"].tolist() == ["a", "b", "step", "step"]
    assert one["depth"].tolist() == [0, 1, 2, 1]
    assert one["parent"].tolist()[1:] == [0, 1, 0]
    assert one["result"].tolist()[0] == "[1,2]"
    assert one["error"].isna().tolist() == [True, True, False, False]


def test_what_the_engine_did_not_tell_is_missing(small: RunDirectory) -> None:
    with RunDirectory.open_for_writing(small.path) as run:
        play(run, "train/0000", Usage(9, 4, 2, 1))
        run.append_request(row(1.0, None, status="failed", episode="train/0000", attempt="1"))
        run.write_sleep(sleep())
    data = load(small.path)
    requests = data.frame("requests")
    assert requests["usage_prompt"].sum() == 9
    assert requests["usage_prompt"].isna().tolist() == [False, True]
    assert requests["wasted"].tolist() == [False, True]
    assert data.frame("sleeps")["prefix_common"].isna().all()
    turns = data.frame("turns")
    assert (turns["call"].isna().tolist(), turns["actions"].tolist()) == ([True], [0])


def test_an_unknown_table_is_told(learnt: ScriptedRun) -> None:
    with pytest.raises(ValueError, match="unknown table 'steps'; tables: episodes, requests, turns"):
        learnt.data.frame("steps")  # type: ignore[arg-type]


def test_the_documentation_names_every_column(small: RunDirectory) -> None:
    text = (CHECKOUT / "docs" / "data.md").read_text()
    columns = {name for table in TABLES for name in load(small.path).frame(table)}
    assert [name for name in sorted(columns) if f"`{name}`" not in text and "at_most_" not in name] == []
