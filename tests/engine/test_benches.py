"""The engine's benchmarks with a real vLLM, shortened. Their figures are not judged, but for the cache's."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from serving.engine.endpoint import Endpoint
from speedrunner.bench import cache_use
from speedrunner.cli.bench_command import cache, rollout
from tests.engine.conftest import ShortModelConfig

app = typer.Typer()
app.command()(cache)
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
def test_real_episodes_get_all_that_the_cache_can_give(vllm_endpoint: Endpoint) -> None:
    short = ("--episodes", "2", "--turns", "5", "--in-flight", "1,2")
    measured = found("cache", f"serving.url={vllm_endpoint}", *short)
    assert figures(measured)["least share of the maximum"] >= 0.99
    assert [(level["in_flight"], level["episodes"]) for level in measured["levels"]] == [(1, 2), (2, 2)]
    for level in measured["levels"]:
        assert level["turns"] == 5 * level["episodes"]
        assert level["hit_rate"] > 0.8


@pytest.mark.slow
def test_a_rollout_and_its_replay_give_tokens(
    vllm_endpoint: Endpoint, short_model_config: ShortModelConfig
) -> None:
    short = (short_model_config(max_calls=8), "--in-flight", "4", "--pairs", "1")
    measured = found("rollout", f"serving.url={vllm_endpoint}", *short)
    assert figures(measured)["rollout over bare replay, 4 in flight"] > 0
    (row,) = measured["rollouts"]
    assert row["client_ms"] > 0
    assert row["prompt"] / row["turns"] > 500


@pytest.mark.slow
def test_in_a_cache_for_half_of_them_admission_keeps_conversations_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache_use, "ADMISSION_ORDER", (True, False))
    small = found("cache", "--episodes", "8", "--turns", "15", "--in-flight", "8")["small_cache"]
    held, free = small
    assert (held["admission"], free["admission"]) == (True, False)
    assert held["queued"] > 0
    assert held["of_maximum"] > free["of_maximum"] + 0.05
