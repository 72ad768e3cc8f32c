"""The engine's benchmarks and probes with a real vLLM, shortened. Few of their figures are judged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import to_builtins
from msgspec.structs import replace

from serving.engine.endpoint import Endpoint
from serving.engine.server import VllmServer
from serving.engine.server_processes import cpu_seconds, server_processes
from serving.model_configs import load_model_config
from serving.usage import Counters
from speedrunner.bench.probes import probe_tools
from speedrunner.plain.plain_yaml import read_yaml_file
from tests.engine.conftest import ShortModelConfig, measure
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow

BLOCKS = 128
"""Blocks of a cache for about half of eight conversations."""

RING = ("env=tests.odd_envs:Ring", "env.words=60", "method=react", "model=tiny-random", "run.rollouts=0")


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """Values by name."""
    return {each["name"]: each["value"] for each in measured["figures"]}


def test_real_episodes_get_all_that_the_cache_can_give_and_have_a_replay(
    vllm_endpoint: Endpoint, short_model_config: ShortModelConfig
) -> None:
    short = (short_model_config(max_calls=8), "--in-flight", "1,4", "--pairs", "1")
    measured = measure("rollout", f"serving.url={vllm_endpoint}", *short)
    assert figures(measured)["rollout over bare replay, 4 in flight"] > 0
    assert figures(measured)["least cached share of the maximum"] >= 0.99
    assert [row["in_flight"] for row in measured["rollouts"]] == [1, 4]
    for row in measured["rollouts"]:
        assert row["turns"] == 8 * row["in_flight"]
        assert row["prompt"] / row["turns"] > 500
        assert 0.8 < row["hit_rate"] < row["of_maximum"] <= 1
        assert 0 < row["mean_in_flight"] < row["in_flight"]
        assert row["client_ms"] > 0


def test_in_a_small_cache_admission_keeps_conversations_cached(tmp_path: Path, tiny_folder: str) -> None:
    file = tmp_path / "small.yaml"
    model_config = load_model_config("tiny-random")
    flags = {**model_config.server.flags, "num-gpu-blocks-override": BLOCKS}
    options = replace(model_config.server, flags=flags)
    actor = replace(model_config.roles.actor, max_calls=10)
    roles = replace(model_config.roles, actor=actor)
    small = replace(model_config, server=options, roles=roles, context=32 * BLOCKS - 32)
    file.write_text(yaml.safe_dump(to_builtins(small)))
    server = VllmServer(small, tmp_path / "server.log")
    asyncio.run(server.start())
    try:
        short = (
            "rollout",
            f"model.name={file}",
            f"serving.url={server.endpoint}",
            "--pairs",
            "1",
            "--in-flight",
            "8",
        )
        (held,) = measure(*short)["rollouts"]
        (free,) = measure(*short, "serving.admission=false")["rollouts"]
    finally:
        asyncio.run(server.stop())
    assert held["queued"] > 0
    assert held["of_maximum"] > free["of_maximum"] + 0.05


def test_cached_prefixes_give_the_distribution_of_computed_ones(
    vllm_endpoint: Endpoint, tmp_path: Path
) -> None:
    where, run = f"serving.url={vllm_endpoint}", tmp_path / "run"
    played = in_process("run", *RING, where, f"run.dir={run}", "run.test_episodes=3", "run.in_flight=2")
    assert (played.returncode, played.stderr) == (0, "")
    replayed = measure("replay", str(run), where, "--tokens", "40", "--trust", "tests.odd_envs:Ring")
    assert replayed["same"] is True
    assert replayed["tokens"] >= 20  # a respelled answer may be shorter than the recorded one
    assert replayed["reused"] > 0


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
    units = measure("tokens", f"model={model}", *url, *SMALL, f"--out={out}")["units"]
    undisturbed = [unit for unit in units if not unit["disturbed"]]
    assert len(undisturbed) > 0.8 * len(units)
    for unit in undisturbed:
        prompt = unit["uncached"] + unit["cached"]
        assert prompt == unit["requests"] * unit["context"]
        assert unit["output"] == unit["requests"] * (64 if unit["kind"] == "output" else 1)
        assert (unit["cached"] > 0.7 * prompt) == (unit["kind"] != "uncached")
    file = out / f"measured-{model}.yaml"
    for level in read_yaml_file(file)["measured"]["levels"]:
        seconds = level["seconds"]
        assert 0 <= seconds["cached"]["value"] < seconds["uncached"]["value"] / 3

    short = ("run.test_episodes=2", f"serving.url={vllm_endpoint}", f"run.dir={run}")
    played = in_process("run", *RING, *short, f"prices={file}")
    assert played.returncode == 0, played.stderr
    cost = in_process("cost", str(run))
    assert cost.returncode == 0, cost.stderr
    assert f"CPU seconds of {model} on " in cost.stdout
    assert ("measured elsewhere" in cost.stdout) == (model == "tiny-hybrid")  # the run used the other model


async def test_all_calls_of_the_battery_are_valid(engine_server: Any) -> None:
    role = replace(engine_server.model_config.roles.actor, thinking_tokens=24)
    probed = await probe_tools(engine_server.model, role, 13, 13, lambda line: None)
    *kinds, total = probed.tables[0].rows
    assert probed.facts["problems"] == []
    assert total == {"probe": "all", "valid": 13, "invalid": 0, "truncated": 0}
    assert {counts["valid"] for counts in kinds} == {1, 2}
    thought = [row.usage.reasoning for row in engine_server.rows[1:14] if row.usage.completion]
    assert max(thought) > 0
    reconciliation = await engine_server.deployment.reconciliation()
    assert reconciliation.residual == Counters()


def test_the_cache_probe_finds_all_that_the_cache_can_give(vllm_endpoint: Endpoint) -> None:
    probed = measure("probe", "cache", "model=tiny-random", f"serving.url={vllm_endpoint}")
    whole = probed["requests"][-1]
    assert whole["expected"] == whole["reported"] != 0
    assert probed["figures"][0]["value"] == 1.0
    assert probed["advice"] == []
