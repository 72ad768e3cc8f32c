"""The clock of steps as other processes read it; tests/engine/test_gpu_record.py has a real engine's."""

from __future__ import annotations

from pathlib import Path

from serving.engine.step_clock import _CELLS, TIMED, read_clock


def test_replicas_are_means_and_a_model_s_own_process_has_no_clock(tmp_path: Path) -> None:
    unused = [0.0] * 2 * len(TIMED)
    (tmp_path / "steps-1").write_bytes(_CELLS.pack(*unused))
    assert read_clock(tmp_path) == {}
    for number, seconds in enumerate((1.0, 3.0), start=2):
        (tmp_path / f"steps-{number}").write_bytes(_CELLS.pack(*[10.0, seconds] * len(TIMED)))
    assert read_clock(tmp_path) == dict.fromkeys(TIMED, (10.0, 2.0))
