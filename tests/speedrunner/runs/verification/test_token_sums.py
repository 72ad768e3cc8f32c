"""Ledgers, summary rows and accounts that do not fit the episodes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from speedrunner.config.grid import Grid
from speedrunner.plain.findings import Finding
from speedrunner.runs.planned_runs import set_up_runs
from speedrunner.runs.player import play_runs
from speedrunner.runs.shutdown import Shutdown
from speedrunner.runs.verification.token_sums import SHARED, check_reconciliations
from tests.scripted_runs import Runs, ScriptedRun, script
from tests.tampered_runs import change, copy_of, open_checked, told


def checked(run: Path, *, is_finished: bool = True) -> Finding:
    verified = open_checked(run)
    verified.is_finished = is_finished
    return check_reconciliations(verified)


def row_of(run: Path, episode: str) -> int:
    """The first row of the ledger that is an episode's."""
    lines = (run / "requests.jsonl").read_text().splitlines()
    return next(n for n, line in enumerate(lines) if json.loads(line)["labels"].get("episode") == episode)


def more(record: Any) -> None:
    record["usage"]["prompt"] += 1


@pytest.mark.parametrize("key", ["train/0001", "test/0002/0000", "sleep/0001"])
def test_a_row_of_the_ledger(learnt: ScriptedRun, tmp_path: Path, key: str) -> None:
    run = copy_of(learnt.dir, tmp_path)
    change(run, "requests.jsonl", more, row_of(run, key))
    found = told(checked(run))
    assert [each.split(":")[0] for each in found] == [key, "reconciliation.jsonl"]
    assert "tokens of its turns and of its rows in the ledger" in found[0]


def test_a_prompt_that_is_shorter_than_what_it_continues(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)

    def edit(record: Any) -> None:
        record["agents"][0]["turns"][1]["usage"] |= {"prompt": 3, "cached": 0}

    change(run, "sleeps/0001.json", edit)
    first, *_ = told(checked(run))
    assert first.startswith("sleep/0001: tokens of its turns")
    assert any(each.startswith("sleep/0001, turn 2: its prompt has 3 tokens") for each in told(checked(run)))


def test_a_row_of_nobody_s(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    change(run, "requests.jsonl", more, 0)
    assert [each.split(":")[0] for each in told(checked(run))] == ["reconciliation.jsonl"]


def test_a_row_of_an_episode_that_is_not_there(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    place = row_of(run, "train/0001")
    change(run, "requests.jsonl", lambda row: row["labels"].update(episode="train/0099"), place)
    found = told(checked(run))
    assert any("it has tokens of train/0099, attempt 1, which is not recorded" in each for each in found)
    assert len(told(checked(run, is_finished=False))) == 1  # which lacks its tokens


@pytest.mark.parametrize(("name", "value"), [("score", 0.5), ("checkpoint", 1), ("actions", 99)])
def test_a_summary_row(learnt: ScriptedRun, tmp_path: Path, name: str, value: float) -> None:
    run = copy_of(learnt.dir, tmp_path)
    change(run, "episodes.jsonl", lambda row: row.update({name: value}), 3)
    (difference,) = told(checked(run))
    assert difference.startswith(f"{learnt.data.episodes[3].episode}: its row in episodes.jsonl")


def test_summary_rows_that_are_missing_or_twice(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    lines = (run / "episodes.jsonl").read_text().splitlines(keepends=True)
    (run / "episodes.jsonl").write_text("".join([*lines[1:], lines[2]]))
    twice, missing = told(checked(run))
    assert twice == "episodes.jsonl: 1 rows occur twice"
    assert missing == f"{learnt.data.episodes[0].episode}: it has no row in episodes.jsonl"
    assert told(checked(run, is_finished=False)) == [twice]


@pytest.mark.parametrize("side", ["ledger", "engine"])
def test_a_stored_account(learnt: ScriptedRun, tmp_path: Path, side: str) -> None:
    run = copy_of(learnt.dir, tmp_path)

    def edit(row: Any) -> None:
        row[side]["generated"] += 1
        row["ours"] = True

    change(run, "reconciliation.jsonl", edit)
    found = told(checked(run))
    assert len(found) == (2 if side == "ledger" else 1)
    assert all(each.startswith("reconciliation.jsonl: ") for each in found)


async def test_an_account_of_a_shared_engine_is_that_of_all_runs_beside_it(
    corridor: Runs, tmp_path: Path
) -> None:
    one = corridor(script(), "method=react", "run.rollouts=0")
    file = tmp_path / "runs.yaml"
    file.write_text("".join(f"- run.dir={one.folder / name} run.seed={n}\n" for n, name in enumerate("ab")))
    shared = [each for each in one.overrides() if not each.startswith("run.dir=")]
    console, shutdown = Console(file=io.StringIO()), Shutdown(lambda line: None, 60.0)
    await play_runs(set_up_runs(Grid(file, shared).runs()), console, shutdown)
    check = checked(one.folder / "a")
    assert (check.level, "left out" in check.text) == ("ok", False)
    check = checked(copy_of(one.folder / "a", tmp_path / "elsewhere"))
    assert check.level == "ok"
    assert f"1 left out: {SHARED}" in check.text
