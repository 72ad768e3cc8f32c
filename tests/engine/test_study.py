"""Replayed tokens of a short run with a real engine: the cache changes no distribution."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from serving.engine.endpoint import Endpoint
from speedrunner.cli.bench_commands import replay
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(replay)


def test_cached_prefixes_give_the_distribution_of_computed_ones(
    vllm_endpoint: Endpoint, tmp_path: Path
) -> None:
    where = f"serving.url={vllm_endpoint}"
    run = tmp_path / "run"
    played = in_process(
        *(
            "run",
            "env=tests.odd_envs:Ring",
            "env.words=60",
            "method=react",
            "model=tiny-random",
            where,
            f"run.dir={run}",
        ),
        *("run.rollouts=0", "run.test_episodes=3", "run.in_flight=2"),
    )
    assert (played.returncode, played.stderr) == (0, "")
    options = ("--tokens", "40", "--trust", "tests.odd_envs:Ring", "--json")
    found = json.loads(CliRunner().invoke(app, [str(run), where, *options]).stdout)
    assert found["same"] is True
    assert found["tokens"] >= 20  # a respelled answer may be shorter than the recorded one
    assert found["reused"] > 0
