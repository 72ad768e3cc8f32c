"""A record as people see it. `UPDATE=1` writes the expected page in `tests/data/gpu_record` again."""

from __future__ import annotations

import os
from pathlib import Path

from speedrunner.bench.gpu.gpu_pages import as_text
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.record import StepRecord
from tests.record_samples import write_record

EXPECTED = Path(__file__).parents[3] / "data" / "gpu_record"


def test_the_page_is_the_expected_one(tmp_path: Path) -> None:
    record = write_record(tmp_path)
    found = as_text(record)
    if os.environ.get("UPDATE"):
        (EXPECTED / "record.md").write_text(found)
    assert found == (EXPECTED / "record.md").read_text()


def test_control_characters_are_written_out(tmp_path: Path) -> None:
    record = write_record(tmp_path)
    record.keep(StepRecord(step="tools", began=1.0, measured=Measurement("x", notes=["\x1b[31m"])))
    assert "\x1b" not in as_text(record)
    assert "\\x1b[31m" in as_text(record)
