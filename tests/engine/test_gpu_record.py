"""`bench gpu` with real servers on the CPU: the whole record of the hybrid model, in pieces."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import yaml
from msgspec import to_builtins
from msgspec.structs import replace

from serving.model_configs import load_model_config
from speedrunner.bench.gpu import steps
from speedrunner.bench.gpu.record import Record, read_record_folder
from tests.scripted_runs import in_process

ONCE = "the server runs 8 sequences at a time, as in rollout-16"

TRIES = 4
"""Commands that continue; a step may exceed its bound on a machine that is busy for a while."""


@pytest.mark.slow
def test_the_whole_record_of_the_hybrid_model_is_made_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "ON_CPU", replace(steps.ON_CPU, aim_s=6))
    out, file = tmp_path / "record", tmp_path / "hybrid.yaml"
    model_config = load_model_config("tiny-hybrid")
    flags = {**model_config.server.flags, "max-num-seqs": 8}  # environments of more would need much memory
    model_config = replace(model_config, server=replace(model_config.server, flags=flags))
    file.write_text(yaml.safe_dump(to_builtins(model_config)))
    command = ("bench", "gpu", f"model.name={file}", f"--out={out}")
    before = set(psutil.Process().children(recursive=True))
    # Long enough for a start, too short for much more: what is left is listed, and the server is stopped.
    first = in_process(*command, "--minutes=4.5")
    assert "To continue: speedrunner bench gpu model.name=" in first.stdout, first.stderr
    assert set(psutil.Process().children(recursive=True)) <= before
    pieces = finished(out)
    assert "environment" in pieces
    for _ in range(TRIES):
        done = in_process(*command, "--minutes=60")
        if "To continue" not in done.stdout:
            break
    assert pieces.items() <= finished(out).items()  # none of them was played again
    record = read_record_folder(out)
    assert {name: step.reason for name, step in record.steps.items() if step.status != "done"} == {
        **dict.fromkeys(("rollout-64", "rollout-128"), ONCE),
        "fp8": "the model configuration tiny-hybrid-fp8 does not exist",
    }
    assert done.stdout.count("####") == 8  # each part has a heading
    assert row(record, "no-cache")["cached"] == 0
    assert row(record, "rollout-16")["hit_rate"] > 0.5
    assert row(record, "rollout-16")["server_ms"] > 0
    whole, half = (record.steps[name].measured for name in ("cache-share", "half-cache"))
    assert whole is not None
    assert half is not None
    assert half.tables[0].rows[0]["cache_blocks"] < whole.tables[0].rows[0]["cache_blocks"] / 2
    assert set(psutil.Process().children(recursive=True)) <= before


def finished(out: Path) -> dict[str, float]:
    """When each finished step began."""
    steps = read_record_folder(out).steps
    return {name: step.began for name, step in steps.items() if step.status != "failed"}


def row(record: Record, step: str) -> dict[str, float]:
    """A rollout's row."""
    measured = record.steps[step].measured
    assert measured is not None
    found: dict[str, float] = measured.tables[0].rows[0]
    return found
