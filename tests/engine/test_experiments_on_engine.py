"""The experiments that are not in the paper at `scale=smoke`, with the random model and a real vLLM.

`test_library_experiments.py` plays those with stored libraries. `open-models` and the paper's differ from
these in methods and environments only, which `test_environments.py` plays.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint
from speedrunner.experiments.grid import grid_of
from speedrunner.store.run_data import load
from tests.scripted_runs import speedrunner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all experiments, so that runs that two of them share are played once."""
    return tmp_path_factory.mktemp("experiments")


SHORT = (
    *("run.rollouts=2", "run.eval_every=2", "run.test_episodes=1"),
    *("model.actor.max_calls=4", "model.actor.thinking_tokens=16"),
    *("model.inducer.max_calls=4", "model.inducer.thinking_tokens=16"),
)
"""Few tokens: the random model always thinks to the end of its budget, and calls tools to its limit."""


def check_experiment(runs: Path, name: str, seed: int, *server: str) -> None:
    """Play the runs of a seed, and check that each of them has all its evaluations."""
    given = [f"experiment={name}", "scale=smoke", f"run.seed={seed}", *SHORT]
    done = speedrunner("sweep", *given, *server, "--dir", str(runs))
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    for run in grid_of(given, runs).runs():
        config, played = run.config.run, load(run.config.run.dir)
        tests = [row.checkpoint for row in played.episodes if row.phase == "test"]
        assert sorted(tests) == sorted(config.checkpoints * config.test_episodes), config.dir


@pytest.mark.parametrize(("name", "seed"), [("guard", 3), ("cost-aware", 0), ("notes", 0)])
def test_an_experiment_plays_all_its_runs_of_a_seed(
    name: str, seed: int, runs: Path, vllm_endpoint: Endpoint
) -> None:
    check_experiment(runs, name, seed, f"serving.url={vllm_endpoint}")


def test_one_with_several_contexts_starts_its_own_server(runs: Path) -> None:
    check_experiment(runs, "sensitivity", 0)
