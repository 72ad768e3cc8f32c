"""`bench gpu` with real servers on the CPU: all steps of the hybrid model."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from serving.model_configs import load_model_config
from speedrunner.bench.engine import playing_setup
from speedrunner.bench.gpu.steps import play_steps, steps_of
from speedrunner.bench.measurement import Measurement
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Shutdown

pytestmark = pytest.mark.slow


@pytest.fixture
def setup() -> Setup:
    """The hybrid model with at most four episodes at a time."""
    model_config = load_model_config("tiny-hybrid").with_flags({"max-num-seqs": 4})
    return replace(playing_setup(["model=tiny-hybrid"]), model_config=model_config)


async def play(setup: Setup, *only: str) -> dict[str, Measurement]:
    """Play steps, and return what they measured by their names."""
    shown: list[Measurement] = []
    await play_steps(setup, steps_of(setup, only), lambda line: None, Shutdown(print), shown.append)
    return {measured.title.partition(":")[0]: measured for measured in shown}


async def test_all_steps_of_the_hybrid_model(setup: Setup) -> None:
    before = set(psutil.Process().children(recursive=True))
    shown = await play(setup)
    assert list(shown) == ["capacity", "tools", "cache-probe", "utilisation", "rollout-4"]
    row = shown["rollout-4"].tables[0].rows[0]
    assert row.hit_rate > 0.5
    assert 0.97 <= row.of_maximum <= 1
    (load,) = shown["utilisation"].tables[0].rows
    assert 1 <= load["requests running"] <= 4
    assert 0 < load["decode-only steps"] < 1
    assert load["mixed step, ms"] > 0
    assert load["prefill tokens of a mixed step"] > 1
    assert load["CPU cores, API server"] > 0
    assert 0 < load["CPU cores, EngineCore"] < 1.5
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_four_schedules_of_the_hybrid_model_are_compared(setup: Setup) -> None:
    shown = await play(setup, "schedule")
    notes = [note for measured in shown.values() for note in measured.notes]
    assert sum("times as long as a decode-only step: " in note for note in notes) == 4
    rows = [row for measured in shown.values() for row in measured.tables[0].rows]
    schedules = [(row["match unit"], row["convoy steps"], row["in flight"]) for row in rows]
    assert schedules == [(16, 0, 4), (16, 12, 4), (1, 0, 4), (1, 12, 4)]
    assert [row["steps with a full CUDA graph"] for row in rows] == [0.0] * 4  # known, and a CPU has none
    assert all(row["mixed step, ms"] > 0 and row["output tokens/s"] > 0 for row in rows)
    assert rows[3]["decode-only steps"] > rows[0]["decode-only steps"]
