from __future__ import annotations

from pathlib import Path

from speedrunner.store.sweep_plans import PlannedRun, SweepPlan, note_sweep, noted_sweeps


def test_notes_in_a_run_s_directory_do_not_count(tmp_path: Path) -> None:
    note_sweep(tmp_path / "run", SweepPlan("speedrunner sweep x", [PlannedRun("one")]))
    assert len(noted_sweeps(tmp_path)) == 1
    (tmp_path / "run/config.yaml").write_text("run: {dir: x}\n")
    assert noted_sweeps(tmp_path) == noted_sweeps(tmp_path / "run") == []
