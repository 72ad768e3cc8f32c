"""Episodes leave nothing behind in their process. `make soak N=...` plays more, and measures the time too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos import soak


@pytest.mark.slow
def test_runs_leave_nothing_in_their_process(tmp_path: Path) -> None:
    # The first run fills caches. Other tests may have left shared helpers of this process, so what counts is
    # that nothing is added.
    _, first, *_, last = asyncio.run(soak.play(4 * soak.ROLLOUTS, tmp_path))
    assert (last.descriptors, last.threads, last.processes) == (
        first.descriptors, first.threads, first.processes,
    )  # fmt: skip
    assert last.objects - first.objects < 1_000
    assert last.memory - first.memory < 16


def sample(episodes: int, memory: float) -> soak.Sample:
    return soak.Sample(episodes, memory, objects=9, descriptors=9, threads=5, processes=0, cpu=9.0)


def test_a_slope_is_found_in_noise() -> None:
    noise = [0.3, -0.5, 0.2, 0.4, -0.1, -0.3, 0.6, -0.6] * 5
    level = [sample(100 * place, 400 + each) for place, each in enumerate(noise)]
    rising = [sample(100 * place, 400 + place + each) for place, each in enumerate(noise)]
    flat, found = soak.slope(level, "memory"), soak.slope(rising, "memory")
    assert flat.low < 0 < flat.high
    assert found.low < 10 < found.high
    assert found.low > 5
    assert soak.slope(level, "threads") == soak.Slope(0, 0, 0)
