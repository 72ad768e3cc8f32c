"""A record of `bench gpu` with a step of each kind, for tests of what shows it."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from speedrunner.bench.measurement import MeasuredFigure, MeasuredTable, Measurement
from speedrunner.bench.record import BenchRecord, StepRecord, Subject, open_record
from speedrunner.bench.rollouts import Rollout

NOON = 1_790_000_000.0

SUBJECT = Subject(
    settings={
        "hardware": "1 x Imaginary GPU",
        "engine": {"vllm": "0.32.0", "torch": "2.11.0"},
        "model": {"name": "qwen3.5-27b", "context": 131072},
        "server": "started",
    },
    overrides=["model=qwen3.5-27b", "model.load_format=dummy"],
    environment={"CPU": "Imaginary CPU", "vllm": "0.32.0"},
)

ROW = Rollout(
    in_flight=16,
    calls=8,
    turns=128,
    prompt=400_000,
    output=40_000,
    seconds=50.0,
    output_per_s=800.0,
    replay_per_s=832.0,
    ratio=0.9615,
    mean_in_flight=15.2,
    of_maximum=0.998,
    hit_rate=0.931,
    queued=0,
    client_ms=3.14,
    transit_ms=1.5,
    transit_p95_ms=4.25,
    turn_ms=2.5,
    turn_p95_ms=6.0,
    worker_ms=None,
)


def rollout_step(row: Rollout, began: float) -> StepRecord:
    ratio = f"rollout over bare replay, {row.in_flight} in flight"
    measured = Measurement(
        "a rollout",
        figures=[MeasuredFigure(ratio, row.ratio, at_least=0.95, form=".3f")],
        tables=[MeasuredTable("rollouts", [row], turned=True)],
        notes=["a note"],
    )
    return StepRecord(step=f"rollout-{row.in_flight}", began=began, seconds=104.0, measured=measured)


def start_step(start: str, seconds: float, began: float) -> StepRecord:
    rows = [{"start": start, "phase": "total", "seconds": seconds}]
    table = MeasuredTable("starts", rows, ("start", "phase", "seconds:.1f"))
    measured = Measurement("a start", tables=[table])
    return StepRecord(step=f"start-{start}", began=began, seconds=seconds, measured=measured)


def write_record(folder: Path) -> BenchRecord:
    """Two starts, two rollouts and a failed step; every value is invented."""
    folder.mkdir(parents=True, exist_ok=True)
    record = open_record(folder, SUBJECT)
    wide = replace(ROW, in_flight=64, ratio=0.97)
    for step in (
        StepRecord(step="tools", reason="no | room", began=NOON, seconds=300.0),
        start_step("cold", 312.4, NOON),
        rollout_step(ROW, NOON + 600),
        start_step("warm", 92.0, NOON + 7200),
        rollout_step(wide, NOON + 7500),
    ):
        record.keep(step)
    return record
