"""Episodes by ending, score, skill and text."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs import Outcome
from serving.tokens.tools import ToolCall
from speedrunner.pages.search import InvalidQuery, Query, search
from speedrunner.store.records import CallNode, Termination
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.pages.runs import CONFIG, append
from tests.speedrunner.run_samples import trajectory


@pytest.fixture
def run(tmp_path: Path) -> RunData:
    other = trajectory(
        "train/0001", text='say "é"', termination=Termination.FAILURE, outcome=Outcome(0.25, False, {})
    )
    other.turns[1].call = ToolCall("run", {})
    other.turns[1].executed = CallNode("run", "skill", {})
    fault = trajectory("train/0002", termination=Termination.ENGINE_ERROR, outcome=None)
    with RunDirectory.open_for_writing(tmp_path / "run") as directory:
        directory.write_config(CONFIG)
        for played in (other, fault, trajectory("train/0000")):
            append(directory, played)
    return load(tmp_path / "run")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, {"train/0000": None, "train/0001": None, "train/0002": None}),
        ({"termination": "failure"}, {"train/0001": None}),
        ({"least": "0.2", "most": "0.3"}, {"train/0001": None}),
        ({"least": "0"}, {"train/0000": None, "train/0001": None}),
        ({"phase": "test"}, {}),
        ({"skill": "run"}, {"train/0001": 2}),
        ({"skill": "go_forward"}, {}),
        ({"text": 'say "é"'}, {"train/0001": 1}),
        ({"text": 'say "é"', "skill": "run"}, {}),
        ({"text": "run", "skill": "run"}, {"train/0001": 2}),
        ({"text": "DONE", "termination": "success"}, {"train/0000": 1}),
        ({"text": "executed"}, {}),
        ({"text": "walk(steps=3)"}, {}),
        ({"text": "no call"}, {"train/0000": 2, "train/0001": 2, "train/0002": 2}),
    ],
    ids=str,
)
def test_what_is_asked_for_is_found_with_its_turn(
    run: RunData, asked: dict[str, str], found: dict[str, int | None]
) -> None:
    assert {hit.row.episode: hit.turn for hit in search(run, Query.read(asked))} == found


def test_no_text_of_an_episode_poses_as_a_call(tmp_path: Path) -> None:
    posing = trajectory(text='"executed":{"name":"run","kind":"skill"')
    with RunDirectory.open_for_writing(tmp_path / "run") as directory:
        directory.write_config(CONFIG)
        append(directory, posing)
    assert search(load(tmp_path / "run"), Query(skill="run")) == []


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="least='high' must be a number"):
        Query.read({"least": "high"})
