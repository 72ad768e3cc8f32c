"""A record as people see it. `UPDATE=1` writes the expected page in `tests/data/gpu_record` again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speedrunner.bench.gpu.gpu_pages import as_text, record_tables
from speedrunner.bench.gpu.record import Record, StepRecord
from speedrunner.bench.measurement import Measurement
from tests.record_samples import write_record

EXPECTED = Path(__file__).parents[3] / "data" / "gpu_record"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return write_record(tmp_path)


def test_the_page_is_the_expected_one(record: Record) -> None:
    found = as_text(record)
    if os.environ.get("UPDATE"):
        (EXPECTED / "record.md").write_text(found)
    assert found == (EXPECTED / "record.md").read_text()


def test_the_report_gets_the_same_tables(record: Record) -> None:
    tables = {each.name: each for each in record_tables(record.folder)}
    name = record.folder.name
    assert list(tables) == [
        *(f"{name}_Start_starts", f"{name}_Rollouts_rollouts", f"{name}_Rollouts_figures"),
        f"{name}_Not_measured",
    ]
    starts = tables[f"{name}_Start_starts"]
    assert (starts.columns, starts.rows[0]) == (["start", "phase", "seconds"], ("cold", "total", "312.4"))
    assert starts.caption.startswith("qwen3.5-27b on 1 x Imaginary GPU, 2026-")


def test_control_characters_are_written_out(record: Record) -> None:
    measured = Measurement("x", notes=["\x1b[31m"])
    record.keep(StepRecord(step="tools", status="done", began=1.0, measured=measured))
    assert "\x1b" not in as_text(record)
    assert "\\x1b[31m" in as_text(record)
