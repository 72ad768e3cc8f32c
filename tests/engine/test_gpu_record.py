"""`bench gpu` with real servers on the CPU: the whole record of the hybrid model, in pieces."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import yaml
from msgspec import to_builtins

from serving.model_configs import load_model_config
from speedrunner.bench.gpu import steps
from speedrunner.bench.record import read_record_folder
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow

TRIES = 4
"""Commands that continue; a step may exceed its bound on a machine that is busy for a while."""


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    """The command that makes a record of the hybrid model, of at most four episodes at a time."""
    file = tmp_path / "hybrid.yaml"
    model_config = load_model_config("tiny-hybrid").with_flags({"max-num-seqs": 4})
    file.write_text(yaml.safe_dump(to_builtins(model_config)))
    return ("bench", "gpu", f"model.name={file}", f"--out={tmp_path / 'record'}")


def test_the_whole_record_of_the_hybrid_model_is_made_in_pieces(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    out = tmp_path / "record"
    before = set(psutil.Process().children(recursive=True))
    # Too short for the last step: what is left is listed, and the server is stopped.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(steps.EXPECTED_S, "start-warm", (1e6, 1e6))
        first = in_process(*command, "--minutes=20")
    assert "To continue: speedrunner bench gpu model.name=" in first.stdout, first.stderr
    assert set(psutil.Process().children(recursive=True)) <= before
    pieces = finished(out)
    assert "start-cold" in pieces
    for _ in range(TRIES):
        done = in_process(*command, "--minutes=60")
        if "To continue" not in done.stdout:
            break
    assert pieces.items() <= finished(out).items()  # none of them was played again
    record = read_record_folder(out)
    assert {name: step.reason for name, step in record.steps.items()} == dict.fromkeys(
        ("start-cold", "capacity", "tools", "cache-probe", "utilisation", "rollout-4", "start-warm"), ""
    )
    row = record.steps["rollout-4"].measured.tables[0].rows[0]  # type: ignore[union-attr]
    assert row["hit_rate"] > 0.5
    assert 0.97 <= row["of_maximum"] <= 1
    (load,) = record.steps["utilisation"].measured.tables[0].rows  # type: ignore[union-attr]
    assert 1 <= load["requests running"] <= 4
    assert 0 < load["decode-only steps"] < 1
    assert load["mixed step, ms"] > 0
    assert load["prefill tokens of a mixed step"] > 1
    assert load["CPU cores, API server"] > 0
    assert 0 < load["CPU cores, EngineCore"] < 1.5
    assert set(psutil.Process().children(recursive=True)) <= before


def test_four_schedules_of_the_hybrid_model_are_compared(
    tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LONGEST_S", 3600.0)
    done = in_process(*command, "--only=schedule", "--minutes=120")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("times as long as a decode-only step: ") == 4
    measured = [step.measured for step in read_record_folder(tmp_path / "record").steps.values()]
    rows = [row for found in measured if found is not None for row in found.tables[0].rows]
    schedules = [(row["match unit"], row["convoy steps"], row["in flight"]) for row in rows]
    assert schedules == [(16, 0, 4), (16, 12, 4), (1, 0, 4), (1, 12, 4)]
    assert [row["steps with a full CUDA graph"] for row in rows] == [0.0] * 4  # known, and a CPU has none
    assert all(row["mixed step, ms"] > 0 and row["output tokens/s"] > 0 for row in rows)
    assert rows[3]["decode-only steps"] > rows[0]["decode-only steps"]


def finished(out: Path) -> dict[str, float]:
    """When each finished step began."""
    steps = read_record_folder(out).steps
    return {name: step.began for name, step in steps.items() if step.measured is not None}
