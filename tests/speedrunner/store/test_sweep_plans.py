"""What a folder's notes of sweeps may make a reader do, whoever wrote them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from speedrunner.store.sweep_plans import PlannedRun, SweepPlan, note_sweep, noted_sweeps


def test_notes_in_a_run_s_directory_do_not_count(tmp_path: Path) -> None:
    note_sweep(tmp_path / "run", SweepPlan("speedrunner sweep x", [PlannedRun("one")]))
    assert len(noted_sweeps(tmp_path)) == 1
    (tmp_path / "run/config.yaml").write_text("run: {dir: x}\n")
    assert noted_sweeps(tmp_path) == noted_sweeps(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("speedrunner sweep x '--dir=a b'", "speedrunner sweep x '--dir=a b'"),
        ("speedrunner sweep x; touch y", "speedrunner sweep 'x;' touch y"),
        ("speedrunner sweep $(touch y)", "speedrunner sweep '$(touch' 'y)'"),
        ("touch y", "speedrunner sweep ..."),
        ("speedrunner sweep 'x", "speedrunner sweep ..."),
    ],
)
def test_a_stored_command_is_quoted(tmp_path: Path, stored: str, shown: str) -> None:
    note_sweep(tmp_path, SweepPlan(stored, []))
    assert [plan.command for plan in noted_sweeps(tmp_path)] == [shown]
    assert shlex.join(shlex.split(shown)) == shown
