"""Every experiment at the scale of a smoke test, with the random model and a real vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.config.compose import group_choices
from speedrunner.experiments.grid import grid_of
from speedrunner.store.run_data import load
from tests.scripted_runs import speedrunner

EXPERIMENTS = sorted({*group_choices("experiment")} - {"demo", "demo-full", "attribution", "shapley"})
"""All except the demos, which are small already, and those of a stored library (test_library_experiments)."""


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_plays_all_its_runs(name: str, tmp_path: Path) -> None:
    given = [f"experiment={name}", "scale=smoke"]
    done = speedrunner("sweep", *given, "--dir", str(tmp_path), timeout_s=3_600)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    for run in grid_of(given, tmp_path).runs():
        config, played = run.config.run, load(run.config.run.dir)
        tests = [row.checkpoint for row in played.episodes if row.phase == "test"]
        assert sorted(tests) == sorted(config.checkpoints * config.test_episodes), config.dir
