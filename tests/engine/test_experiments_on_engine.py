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


def check_experiment(runs: Path, name: str, *settings: str, server: tuple[str, ...] = ()) -> None:
    """Play an experiment, and check that each of its runs has all its evaluations."""
    # The random model always thinks to the end of its budget, which an experiment may raise to 4,096 tokens.
    short = [f"model.{role}.thinking_tokens=64" for role in ("actor", "inducer")]
    given = [f"experiment={name}", "scale=smoke", *settings, *short]
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
    check_experiment(runs, name, f"run.seed={seed}", server=(f"serving.url={vllm_endpoint}",))


def test_one_with_several_contexts_starts_its_own_server(runs: Path) -> None:
    few = ("run.rollouts=2", "run.eval_every=2", "run.test_episodes=1")
    check_experiment(runs, "sensitivity", "run.seed=0", *few)
