"""The cache study with a real engine: a short run, played again with and without the cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from serving.engine.endpoint import Endpoint
from speedrunner.cli.replay_command import replay
from speedrunner.store.run_data import load
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(replay)


def test_with_the_cache_next_to_nothing_is_computed_again(vllm_endpoint: Endpoint, tmp_path: Path) -> None:
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
    recorded = [turn.usage for each in load(run).evaluations() for turn in each.turns]

    options = ("--tokens", "40", "--trust", "tests.odd_envs:Ring", "--json")
    found = json.loads(CliRunner().invoke(app, [str(run), where, *options]).stdout)
    (method,) = found["methods"]
    cached, fresh = method["passes"]
    assert cached["requests"] == fresh["requests"] == len(recorded) == cached["compared"]
    assert cached["unforced"] == fresh["unforced"] == 0
    assert fresh["cached"] == 0
    assert cached["cached_share"] > 0.7
    assert cached["computed"] < fresh["computed"] / 3
    assert not cached["foreign"]
    found = method["logprobs"]
    assert found["same"] is True
    assert found["reused"] > 0
    for one in (cached, fresh):
        assert one["first_token_s"] > 0
        assert one["usd_at_1"] > one["usd_at_0"] or not one["cached"]
