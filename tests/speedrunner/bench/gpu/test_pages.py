"""A record as people see it. `UPDATE=1` writes the expected pages in `tests/data/gpu_record` again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speedrunner.bench.gpu.pages import PAGE, as_markdown, as_text, parts_of, write_page
from speedrunner.bench.gpu.record import Record, StepRecord, open_record
from speedrunner.bench.measurement import Measurement
from tests.record_samples import SUBJECT, write_record

EXPECTED = Path(__file__).parents[3] / "data" / "gpu_record"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return write_record(tmp_path)


@pytest.mark.parametrize(("name", "page"), [("record.md", as_markdown), ("record.txt", as_text)])
def test_the_pages_are_the_expected_ones(record: Record, name: str, page: object) -> None:
    found = page(record)  # type: ignore[operator]
    if os.environ.get("UPDATE"):
        (EXPECTED / name).write_text(found)
    assert found == (EXPECTED / name).read_text()


def test_rollouts_of_several_steps_are_one_table_in_order_of_time(record: Record) -> None:
    (part,) = [each for each in parts_of(record) if each.title == "Rollouts"]
    assert [step.step for step in part.steps] == ["rollout-16", "no-cache"]
    (table,) = part.tables
    assert [row["server"] for row in table.rows] == ["as configured", "without prefix cache"]


def test_the_page_in_the_folder_is_replaced(record: Record) -> None:
    write_page(record)
    record.keep(StepRecord(step="grammar", status="failed", reason="the engine is gone", began=1.0))
    write_page(record)
    assert "| grammar | failed: the engine is gone |" in (record.folder / PAGE).read_text()


def test_a_record_without_a_step_has_a_title_alone(tmp_path: Path) -> None:
    record = open_record(tmp_path, SUBJECT)
    assert as_text(record) == "qwen3.5-27b on 1 x Imaginary GPU\nvllm 0.32.0, torch 2.11.0"


def test_control_characters_are_written_out(record: Record) -> None:
    measured = Measurement("x", notes=["\x1b[31m"])
    record.keep(StepRecord(step="tools", status="done", began=1.0, measured=measured))
    for page in (as_text(record), as_markdown(record)):
        assert "\x1b" not in page
        assert "\\x1b[31m" in page
