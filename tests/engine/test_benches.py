"""The engine's benchmarks with a real vLLM, shortened. Their figures are not judged, but for the cache's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from msgspec import to_builtins
from msgspec.structs import replace
from typer.testing import CliRunner

from serving.engine.endpoint import Endpoint
from serving.engine.server import VllmServer
from serving.model_configs import load_model_config
from speedrunner.cli.bench_commands import rollout
from tests.engine.conftest import ShortModelConfig

BLOCKS = 128
"""Blocks of a cache for about half of eight conversations."""

app = typer.Typer()
app.command()(rollout)


def found(*arguments: str) -> dict[str, Any]:
    """The one JSON object that a benchmark prints."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code in (0, 1), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    measured: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if measured["met"] else 1)
    return measured


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """Values by name."""
    return {each["name"]: each["value"] for each in measured["figures"]}


@pytest.mark.slow
def test_real_episodes_get_all_that_the_cache_can_give_and_have_a_replay(
    vllm_endpoint: Endpoint, short_model_config: ShortModelConfig
) -> None:
    short = (short_model_config(max_calls=8), "--in-flight", "1,4", "--pairs", "1")
    measured = found(f"serving.url={vllm_endpoint}", *short)
    assert figures(measured)["rollout over bare replay, 4 in flight"] > 0
    assert figures(measured)["least cached share of the maximum"] >= 0.99
    assert [row["in_flight"] for row in measured["rollouts"]] == [1, 4]
    for row in measured["rollouts"]:
        assert row["turns"] == 8 * row["in_flight"]
        assert row["prompt"] / row["turns"] > 500
        assert 0.8 < row["hit_rate"] < row["of_maximum"] <= 1
        assert 0 < row["mean_in_flight"] < row["in_flight"]
        assert 0 < row["transit_ms"] <= row["transit_p95_ms"]
        assert 0 < row["turn_ms"] <= row["turn_p95_ms"]
        assert row["client_ms"] > 0


@pytest.mark.slow
def test_in_a_small_cache_admission_keeps_conversations_cached(tmp_path: Path, tiny_folder: str) -> None:
    file = tmp_path / "small.yaml"
    model_config = load_model_config("tiny-random")
    flags = {**model_config.server.flags, "num-gpu-blocks-override": BLOCKS}
    options = replace(model_config.server, flags=flags)
    actor = replace(model_config.roles.actor, max_calls=10)
    roles = replace(model_config.roles, actor=actor)
    small = replace(model_config, server=options, roles=roles, context=32 * BLOCKS - 32)
    file.write_text(yaml.safe_dump(to_builtins(small)))
    server = VllmServer(small, tiny_folder, tmp_path / "server.log")
    asyncio.run(server.start())
    try:
        short = (f"model.name={file}", f"serving.url={server.endpoint}", "--pairs", "1", "--in-flight", "8")
        (held,) = found(*short)["rollouts"]
        (free,) = found(*short, "serving.admission=false")["rollouts"]
    finally:
        asyncio.run(server.stop())
    assert held["queued"] > 0
    assert held["of_maximum"] > free["of_maximum"] + 0.05
