"""A record's folder: what continues it, what is refused, and what a kill or a full disk leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from speedrunner.bench.engine import playing_setup
from speedrunner.bench.gpu.record import (
    open_record,
    read_record_folder,
    subject_of,
)
from speedrunner.bench.measurement import as_text
from speedrunner.config.schema import InvalidConfig
from tests.record_samples import SUBJECT, write_record


def test_a_record_reads_as_it_was_written(tmp_path: Path) -> None:
    written = write_record(tmp_path / "deep" / "record")
    read = read_record_folder(tmp_path / "deep" / "record")
    assert read.subject == SUBJECT
    assert read.steps == written.steps
    assert set(read.steps) == {"start-cold", "start-warm", "rollout-16", "no-cache", "long-prompts", "fp8"}
    measured = read.steps["rollout-16"].measured
    assert measured is not None
    assert "0.962  at least 0.950: met" in as_text(measured)


def test_failed_steps_are_played_again_and_others_are_not(tmp_path: Path) -> None:
    record = write_record(tmp_path)
    assert record.is_finished("start-cold")
    assert record.is_finished("fp8")
    assert not record.is_finished("long-prompts")
    assert not record.is_finished("grammar")
    assert not record.has_succeeded("fp8")
    assert record.facts("rollout-16") == {"calls": 8, "in_flight": 16}
    assert record.facts("long-prompts") == record.facts("grammar") == {}


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        (replace(SUBJECT, hardware="1 x Other GPU"), "hardware: 1 x Imaginary GPU -> 1 x Other GPU"),
        (replace(SUBJECT, engine={"vllm": "0.33.0", "torch": "2.11.0"}), "engine.vllm: 0.32.0 -> 0.33.0"),
        (replace(SUBJECT, settings={"model": {"context": 1}, "server": "started"}), "settings.model.context"),
        (replace(SUBJECT, settings={f"m{n}": n for n in range(9)}), "and 8 more"),
    ],
)
def test_the_record_of_something_else_is_refused_in_one_line(
    tmp_path: Path, changed: object, shown: str
) -> None:
    write_record(tmp_path)
    with pytest.raises(InvalidConfig) as refused:
        open_record(tmp_path, changed)  # type: ignore[arg-type]
    line = str(refused.value)
    assert line.startswith(f"--out {tmp_path} contains a record of qwen3.5-27b with other settings (")
    assert shown in line
    assert line.endswith("choose another folder")
    assert "\n" not in line


@pytest.mark.process
def test_prices_and_remarks_are_not_compared_but_the_context_is(tmp_path: Path) -> None:
    subject = subject_of(playing_setup(["model=tiny-random"]), ["model=tiny-random"])
    assert subject.model == "tiny-random"
    assert subject.hardware
    assert "prices" not in subject.settings["model"]
    assert subject.settings["model"]["context"] == 16384
    assert subject.settings["server"] == "started"
    open_record(tmp_path, subject)
    open_record(tmp_path, subject)  # written and read, it is still the same
