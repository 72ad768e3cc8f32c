"""A record as people see it. `UPDATE=1` writes the expected page in `tests/data/gpu_record` again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speedrunner.bench.gpu.gpu_pages import PAGE, as_text, parts_of, record_tables, write_page
from speedrunner.bench.gpu.record import Record, StepRecord, open_record
from speedrunner.bench.measurement import Measurement
from tests.record_samples import SUBJECT, write_record

EXPECTED = Path(__file__).parents[3] / "data" / "gpu_record"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return write_record(tmp_path)


def test_the_page_is_the_expected_one(record: Record) -> None:
    found = as_text(record)
    if os.environ.get("UPDATE"):
        (EXPECTED / "record.md").write_text(found)
    assert found == (EXPECTED / "record.md").read_text()


def test_rollouts_of_several_steps_are_one_table_in_order_of_time(record: Record) -> None:
    (part,) = [each for each in parts_of(record) if each.title == "Rollouts"]
    assert [step.step for step in part.steps] == ["rollout-16", "no-cache"]
    (_, rollouts), _ = part.tables
    assert rollouts[0] == ["server", "as configured", "without prefix cache"]


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


def test_the_page_in_the_folder_is_replaced(record: Record) -> None:
    write_page(record)
    record.keep(StepRecord(step="grammar", status="failed", reason="the engine is gone", began=1.0))
    write_page(record)
    assert "| grammar      | failed: the engine is gone" in (record.folder / PAGE).read_text()


def test_a_record_without_a_step_has_a_title_alone(tmp_path: Path) -> None:
    record = open_record(tmp_path, SUBJECT)
    assert as_text(record).startswith("### qwen3.5-27b on 1 x Imaginary GPU\n\nvllm 0.32.0, torch 2.11.0. ")
    assert "####" not in as_text(record)


def test_control_characters_are_written_out(record: Record) -> None:
    measured = Measurement("x", notes=["\x1b[31m"])
    record.keep(StepRecord(step="tools", status="done", began=1.0, measured=measured))
    assert "\x1b" not in as_text(record)
    assert "\\x1b[31m" in as_text(record)
