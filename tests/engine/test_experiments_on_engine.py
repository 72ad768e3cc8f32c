"""The experiments that are not in the paper at `scale=smoke`, with the random model and a real vLLM.

`test_library_experiments.py` plays those with stored libraries. The paper's differ from these in methods and
environments only, which other tests play.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.experiments.grid import grid_of
from speedrunner.store.run_data import load
from tests.scripted_runs import speedrunner


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"),
    [("sensitivity", "0"), ("guard", "3"), ("cost-aware", "0"), ("notes", "0"), ("open-models", "0")],
)
def test_an_experiment_plays_all_its_runs_of_a_seed(name: str, seed: str, tmp_path: Path) -> None:
    # The random model always thinks to the end of its budget, which an experiment may raise to 4,096 tokens.
    short = [f"model.{role}.thinking_tokens=64" for role in ("actor", "inducer")]
    given = [f"experiment={name}", "scale=smoke", f"run.seed={seed}", *short]
    done = speedrunner("sweep", *given, "--dir", str(tmp_path), timeout_s=3_600)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    for run in grid_of(given, tmp_path).runs():
        config, played = run.config.run, load(run.config.run.dir)
        tests = [row.checkpoint for row in played.episodes if row.phase == "test"]
        assert sorted(tests) == sorted(config.checkpoints * config.test_episodes), config.dir
