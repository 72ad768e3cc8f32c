"""The environments' benchmark: what it measures, and what it asks for."""

from __future__ import annotations

import math
from dataclasses import replace

import psutil
import pytest

from speedrunner.measure import bench_envs


@pytest.mark.parametrize("env", ["babyai", "scienceworld", "crafter"])
async def test_each_environment_has_its_figures_and_leaves_no_process(env: str) -> None:
    before = psutil.Process().children(recursive=True)
    effort = replace(bench_envs.EFFORTS[env], warm_s=0, worlds=1, steps=10)
    found = await bench_envs.measure_envs(lambda line: None, {env: effort})
    (pace,) = found.tables[0].rows
    assert pace.env == env
    for figure in (pace.steps_per_s, pace.resets_per_s, pace.mb):
        assert 0 < figure < math.inf
    left = set(psutil.Process().children(recursive=True)) - set(before)
    commands = [" ".join(each.cmdline()) for each in left]
    assert not any("spawn_main" in line or "java" in line for line in commands)
    assert found.met is (None if env != "scienceworld" else pace.mb <= 480)
