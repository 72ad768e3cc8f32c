"""What a sweep would do, by condition: counts and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.experiments.grid import Grid
from speedrunner.experiments.sweep_members import Member, members
from speedrunner.experiments.sweep_outline import (
    ConditionOutline,
    outline_conditions,
)
from tests.scripted_runs import in_process

RUNS = """
- {env: babyai, method: [react, speedrunner], model: tiny-random, run.seed: [0, 1, 2]}
- {env: babyai, method: asi, model: tiny-random}
"""
SMALL = ("run.rollouts=20", "run.sleep_every=10", "run.eval_every=20", "run.test_episodes=5")


def planned(folder: Path, *given: str) -> list[Member]:
    """Return the runs of the list; their folder is next to it."""
    file = folder / "runs.yaml"
    file.write_text(RUNS)
    return members(Grid(file, [*SMALL, *given], root=folder / "runs").runs(), plays_here=False)


def outlines(folder: Path, *given: str) -> dict[str, ConditionOutline]:
    """Return the outlines by method, and `all`."""
    found = outline_conditions(planned(folder, *given))
    return {each.condition.method if each.condition else "all": each for each in found}


def test_a_condition_has_one_row_with_the_sums_of_its_runs(tmp_path: Path) -> None:
    found = outlines(tmp_path)
    assert [*found] == ["react", "speedrunner", "asi", "all"]
    assert (found["react"].runs, found["react"].episodes, found["react"].sleeps) == (3, 3 * 2 * 5, 0)
    assert (found["speedrunner"].episodes, found["speedrunner"].sleeps) == (3 * (20 + 2 * 5), 3 * 2)
    assert found["speedrunner"].requests == 3 * (30 * 30 + 2 * 6)


def test_the_last_row_sums_up_all_conditions(tmp_path: Path) -> None:
    *rows, together = outlines(tmp_path).values()
    for number in ("runs", "episodes", "sleeps", "requests"):
        assert getattr(together, number) == sum(getattr(row, number) for row in rows)


def test_methods_whose_sleeps_have_no_limit_are_named(tmp_path: Path) -> None:
    found = outlines(tmp_path)
    assert (found["asi"].requests, found["asi"].unlimited) == (30 * 30, ["asi"])
    assert (found["speedrunner"].unlimited, found["all"].unlimited) == ([], ["asi"])


@pytest.mark.process
def test_the_command_prints_a_row_for_each_condition_and_their_sum(tmp_path: Path) -> None:
    planned(tmp_path)
    command = ["sweep", str(tmp_path / "runs.yaml"), *SMALL, f"--dir={tmp_path / 'runs'}", "--dry-run"]
    lines = in_process(*command).stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["runs", "babyai", "babyai", "babyai", "all"]
    assert lines[4].split() == ["all", "7", "150", "8", "4,536", "+"]


@pytest.mark.process
def test_the_table_fits_a_narrow_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    planned(tmp_path)
    command = ["sweep", str(tmp_path / "runs.yaml"), *SMALL, f"--dir={tmp_path / 'runs'}", "--dry-run"]
    lines = in_process(*command).stdout.splitlines()
    table = lines[: next(number for number, line in enumerate(lines) if line.startswith("+"))]
    assert table[0].split()[-2:] == ["at", "most"]
    assert all(len(line) <= 60 for line in table)
