"""A record's folder: what continues it, what is refused, and what a kill or a full disk leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from speedrunner.bench.engine import playing_setup
from speedrunner.bench.measurement import Measurement, as_text
from speedrunner.bench.record import StepRecord, describe_record, open_record, read_record_folder, subject_of
from speedrunner.config.schema import InvalidConfig
from tests.record_samples import SUBJECT, write_record


def test_a_record_reads_as_it_was_written(tmp_path: Path) -> None:
    written, read = write_record(tmp_path), read_record_folder(tmp_path)
    assert read.subject == SUBJECT
    assert read.steps == written.steps
    assert [name for name in read.steps if read.has_succeeded(name)] == [
        *("start-cold", "rollout-16", "start-warm", "rollout-64")
    ]
    assert not read.has_succeeded("tools")
    assert not read.has_succeeded("capacity")
    measured = read.steps["rollout-16"].measured
    assert measured is not None
    assert "0.962  at least 0.950: met" in as_text(measured)


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"hardware": "1 x Other GPU"}, "hardware: 1 x Imaginary GPU -> 1 x Other GPU"),
        ({"engine": {"vllm": "0.33.0", "torch": "2.11.0"}}, "engine.vllm: 0.32.0 -> 0.33.0"),
        ({"model": {"name": "qwen3.5-27b", "context": 1}}, "model.context: 131072 -> 1"),
        ({f"m{n}": n for n in range(9)}, "and 6 more"),
    ],
)
def test_the_record_of_something_else_is_refused_in_one_line(
    tmp_path: Path, changed: dict[str, Any], shown: str
) -> None:
    write_record(tmp_path)
    with pytest.raises(InvalidConfig) as refused:
        open_record(tmp_path, replace(SUBJECT, settings=SUBJECT.settings | changed))
    line = str(refused.value)
    assert line.startswith(f"--out {tmp_path} contains a record with other settings (")
    assert shown in line
    assert line.endswith("choose another folder")
    assert "\n" not in line


@pytest.mark.process
def test_prices_and_remarks_are_not_compared_but_the_context_is(tmp_path: Path) -> None:
    subject = subject_of(playing_setup(["model=tiny-random"]), ["model=tiny-random"])
    assert subject.settings["model"]["name"] == "tiny-random"
    assert subject.settings["hardware"]
    assert "prices" not in subject.settings["model"]
    assert subject.settings["model"]["context"] == 16384
    assert subject.settings["server"] == "started"
    open_record(tmp_path, subject)
    open_record(tmp_path, subject)  # written and read, it is still the same


def test_the_page_is_the_expected_one(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    golden("bench/gpu_record.md", describe_record(write_record(tmp_path)))


def test_control_characters_are_written_out(tmp_path: Path) -> None:
    record = write_record(tmp_path)
    record.keep(StepRecord(step="tools", began=1.0, measured=Measurement("x", notes=["\x1b[31m"])))
    assert "\x1b" not in describe_record(record)
    assert "\\x1b[31m" in describe_record(record)
