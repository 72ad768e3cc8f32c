"""Scores on instructions that training has and has not, from recorded prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.results.conditions import group_runs
from speedrunner.results.run_result import read_result
from speedrunner.results.unseen import unseen_table
from tests.speedrunner.results.small_runs import SmallRun


def played(path: Path, method: str, scores: list[float], trains: bool, instructions: dict[int, str]) -> None:
    run = SmallRun(path, method={"name": method}, run={"test_episodes": 3})
    run.instructions = instructions
    run.policy(0, {})
    run.test(0, 0, scores)
    if trains:
        run.train(0, [None], [None])


def test_scores_are_apart_by_the_recorded_instructions_also_of_runs_without_training(tmp_path: Path) -> None:
    instructions = {0: "go left", 1: "go right", 100: "go right", 101: "go up", 102: "go down"}
    played(tmp_path / "a", "speedrunner", [1.0, 0.5, 0.0], True, instructions)
    played(tmp_path / "b", "react", [0.0, 1.0, 0.5], False, instructions)
    conditions, _ = group_runs([read_result(tmp_path / name, None) for name in "ab"])
    table = unseen_table(conditions)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["method"], row["score_seen"], row["score_unseen"]) for row in rows] == [
        ("react", 0.0, 0.75),
        ("speedrunner", 1.0, 0.25),
    ]
    assert (rows[0]["checkpoint"], rows[0]["seeds"], rows[0]["tasks_seen"], rows[0]["tasks_unseen"]) == (
        0,
        1,
        1,
        2,
    )


@pytest.mark.parametrize(
    "instructions", [{}, {0: "go", 100: "go", 101: "go", 102: "go"}, {0: "go", 100: "walk"}]
)
def test_environments_without_both_kinds_are_left_out(tmp_path: Path, instructions: dict[int, str]) -> None:
    played(tmp_path / "a", "speedrunner", [1.0, 0.5, 0.0], True, instructions)
    assert unseen_table(group_runs([read_result(tmp_path / "a", None)])[0]).rows == []
