"""The engine's benchmarks with a real vLLM, shortened. Their figures are not judged, but for the cache's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from serving.engine.endpoint import Endpoint
from speedrunner.measure.bench_cache import bench_cache
from speedrunner.measure.bench_rollout import bench_rollout


def found(command: Callable[..., None], *arguments: str) -> dict[str, Any]:
    """The one JSON object that a benchmark prints."""
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code in (0, 1), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    figures: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if figures["met"] else 1)
    return figures


def test_real_episodes_get_all_that_the_cache_can_give(vllm_endpoint: Endpoint) -> None:
    short = ("--episodes", "4", "--turns", "6", "--in-flight", "1,4")
    figures = found(bench_cache, f"serving.url={vllm_endpoint}", *short)
    assert figures["share_of_maximum"] >= 0.99
    assert [level["in_flight"] for level in figures["levels"]] == [1, 1, 4, 4]
    for level in figures["levels"]:
        assert level["turns"] == 24
        assert level["hit_rate"] > 0.8


def test_a_rollout_and_its_replay_give_tokens_and_leave_nothing_behind(vllm_endpoint: Endpoint) -> None:
    short = ("--in-flight", "4", "--pairs", "1", "--client-in-flight", "4")
    figures = found(bench_rollout, f"serving.url={vllm_endpoint}", *short)
    assert figures["ratio_to_replay"] > 0
    assert figures["turns_per_second_per_core"] > 0
    assert figures["client_prompt_tokens"] > 1500
    assert figures["left_behind"] == {"tasks": [], "threads": [], "processes": []}


@pytest.mark.slow
def test_in_a_cache_for_half_of_them_admission_keeps_conversations_cached() -> None:
    figures = found(bench_cache, "--episodes", "8", "--turns", "15", "--in-flight", "8")
    held, free = figures["small_cache"]
    assert (held["admission"], free["admission"]) == (True, False)
    assert held["held_back"] > 0
    assert held["share_of_maximum"] > free["share_of_maximum"] + 0.05
