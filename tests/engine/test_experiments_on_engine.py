"""The experiments that are not in the paper at `scale=smoke`, with the random model and a real vLLM.

`open-models`, `sensitivity` and the paper's differ from these in methods, environments and limits only, which
`test_environments.py` and others play.
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


def check_experiment(runs: Path, *given: str, server: str = "serving.url=null") -> str:
    """Play runs, and check that each of them has all its evaluations; returns what the command printed."""
    done = speedrunner("sweep", *given, *SHORT, server, "--dir", str(runs))
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    for run in grid_of([*given, *SHORT], runs).runs():
        config, played = run.config.run, load(run.config.run.dir)
        tests = [row.checkpoint for row in played.episodes if row.phase == "test"]
        assert sorted(tests) == sorted(config.checkpoints * config.test_episodes), config.dir
    return done.stdout


@pytest.mark.parametrize(("name", "seed"), [("interpreter", 0)])
def test_an_experiment_plays_all_its_runs_of_a_seed(
    name: str, seed: int, runs: Path, vllm_endpoint: Endpoint
) -> None:
    given = (f"experiment={name}", "scale=smoke", f"run.seed={seed}")
    check_experiment(runs, *given, server=f"serving.url={vllm_endpoint}")


def test_runs_with_other_contexts_get_their_own_server(tmp_path: Path) -> None:
    file = tmp_path / "contexts.yaml"
    file.write_text("- {env: babyai, method: react, model.context: [8192, 16384]}")
    printed = check_experiment(tmp_path / "runs", str(file), "scale=smoke")
    assert printed.count("vLLM is ready") == 2
