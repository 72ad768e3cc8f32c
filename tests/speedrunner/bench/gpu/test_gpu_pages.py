"""A record as people see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from speedrunner.bench.measurement import Measurement
from speedrunner.bench.record import StepRecord, as_text
from tests.record_samples import write_record


def test_the_page_is_the_expected_one(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    golden("bench/gpu_record.md", as_text(write_record(tmp_path)))


def test_control_characters_are_written_out(tmp_path: Path) -> None:
    record = write_record(tmp_path)
    record.keep(StepRecord(step="tools", began=1.0, measured=Measurement("x", notes=["\x1b[31m"])))
    assert "\x1b" not in as_text(record)
    assert "\\x1b[31m" in as_text(record)
