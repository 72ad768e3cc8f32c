"""`bench tokens` with real servers on the CPU: prices of both kinds of cache, and a run at these prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint
from serving.engine.server_processes import cpu_seconds, server_processes
from speedrunner.plain.plain_yaml import read_yaml_file
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow

SMALL = ("--usd-per-gpu-hour=0.05", "--contexts=256,1024", "--in-flight=1,4", "--repeats=2")


def test_the_processes_of_a_server_are_found_by_its_socket(vllm_endpoint: Endpoint) -> None:
    used = cpu_seconds(server_processes(vllm_endpoint))
    assert used.keys() == {"EngineCore", "API server"}
    assert used["EngineCore"] > 1


@pytest.mark.parametrize("model", ["tiny-random", "tiny-hybrid"])
def test_a_cached_token_costs_less_than_an_uncached_one(
    vllm_endpoint: Endpoint, tmp_path: Path, model: str
) -> None:
    out, run = tmp_path / "record", tmp_path / "run"
    url = [f"serving.url={vllm_endpoint}"] if model == "tiny-random" else []
    done = in_process("bench", "tokens", f"model={model}", *url, *SMALL, f"--out={out}", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    undisturbed = [unit for unit in found["units"] if not unit["disturbed"]]
    assert len(undisturbed) > 0.8 * len(found["units"])
    for unit in undisturbed:
        prompt = unit["uncached"] + unit["cached"]
        assert prompt == unit["requests"] * unit["context"]
        assert unit["output"] == unit["requests"] * (64 if unit["kind"] == "output" else 1)
        assert (unit["cached"] > 0.7 * prompt) == (unit["kind"] != "uncached")
    file = out / f"measured-{model}.yaml"
    seconds = read_yaml_file(file)["measured"]["seconds"]
    assert 0 <= seconds["cached"]["value"] < seconds["uncached"]["value"] / 3

    env = ("env=tests.odd_envs:Ring", "env.words=60", "method=react", "model=tiny-random")
    short = ("run.rollouts=0", "run.test_episodes=2", f"serving.url={vllm_endpoint}", f"run.dir={run}")
    played = in_process("run", *env, *short, f"prices={file}")
    assert played.returncode == 0, played.stderr
    cost = in_process("cost", str(run))
    assert cost.returncode == 0, cost.stderr
    assert f"CPU seconds of {model} on " in cost.stdout
    assert ("measured elsewhere" in cost.stdout) == (model == "tiny-hybrid")  # the run used the other model
