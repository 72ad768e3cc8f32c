"""What a sweep would do, by condition: counts, limits and estimates."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from speedrunner.config.names import ConditionName
from speedrunner.experiments.grid import Grid
from speedrunner.experiments.sweep_members import Member, members
from speedrunner.experiments.sweep_outline import (
    ConditionOutline,
    Estimate,
    Finished,
    estimate,
    find_finished,
    outline_conditions,
)
from tests.scripted_runs import in_process
from tests.speedrunner.store.test_stored_format import STORED

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


def copy_finished(run: Path) -> None:
    """Make a finished run of the environment and the model of the list."""
    shutil.copytree(STORED, run)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("name: tiny\n", "name: tiny-random\n", 1))


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


BABYAI = ConditionName("babyai", "react", "tiny-random")


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        ([], None),
        ([Finished("a", replace(BABYAI, env="crafter"), 10, 1.0, 2.0)], None),
        ([Finished("a", replace(BABYAI, model="tiny"), 10, 1.0, 2.0)], None),
        ([Finished("a", BABYAI, 0, 1.0, 2.0)], None),
        ([Finished("a", replace(BABYAI, method="asi"), 10, 1.0, 2.0)], Estimate(3.0, 6.0, ["a"])),
        (
            [
                Finished("a", replace(BABYAI, method="asi"), 10, 1.0, 2.0),
                Finished("b", BABYAI, 60, 1.0, None),
            ],
            Estimate(0.5, None, ["b"]),
        ),
    ],
)
def test_the_amounts_of_a_finished_run_are_scaled_by_episodes(
    finished: list[Finished], expected: Estimate | None
) -> None:
    assert estimate(BABYAI, 30, finished) == expected


def test_only_finished_runs_are_measured(tmp_path: Path) -> None:
    for name in ("finished", "unfinished"):
        shutil.copytree(STORED, tmp_path / name)
    (tmp_path / "unfinished" / "state.json").unlink()
    (found,) = find_finished([tmp_path, tmp_path / "none"])
    assert (found.name, found.episodes, found.gpu_hours) == ("finished", 6, 0.0)  # on a CPU


@pytest.mark.process
def test_the_command_prints_a_row_for_each_condition_and_their_sum(tmp_path: Path) -> None:
    planned(tmp_path)
    command = ["sweep", str(tmp_path / "runs.yaml"), *SMALL, f"--dir={tmp_path / 'runs'}", "--dry-run"]
    lines = in_process(*command).stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["runs", "babyai", "babyai", "babyai", "all"]
    assert lines[4].split() == ["all", "7", "150", "8", "4,536", "+"]
    assert lines[-1].startswith("GPU-hours and USD: unknown until ")
    copy_finished(tmp_path / "runs" / "known")
    lines = in_process(*command).stdout.splitlines()
    assert lines[0].split()[-2:] == ["GPU-hours", "USD"]
    assert lines[-1] == "GPU-hours and USD: scaled by episodes from known."


@pytest.mark.process
def test_the_table_fits_a_narrow_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    planned(tmp_path)
    copy_finished(tmp_path / "runs" / "known")
    command = ["sweep", str(tmp_path / "runs.yaml"), *SMALL, f"--dir={tmp_path / 'runs'}", "--dry-run"]
    lines = in_process(*command).stdout.splitlines()
    table = lines[: next(number for number, line in enumerate(lines) if line.startswith("+"))]
    assert table[0].split()[-3:] == ["most", "GPU-hours", "USD"]
    assert all(len(line) <= 60 for line in table)
