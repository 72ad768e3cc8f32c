"""Runs on an OpenEnv server that ignores its seed, hangs or dies: an error, and the run resumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.openenv_server import Server, guessing
from tests.scripted_engine import Answer, Request, call
from tests.scripted_runs import Runs, ScriptedRun, script

pytestmark = [pytest.mark.process, pytest.mark.slow]


def guesser(request: Request) -> Answer:
    """Guess one digit after the other."""
    return call("act", text=str(request.turn % 10))


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server(guessing)
    yield started
    started.stop()


@pytest.fixture
def run(server: Server, corridor: Runs) -> ScriptedRun:
    settings = ("env=openenv", f"env.url={server.url}", "env.observation=text", "method=react")
    return corridor(script(guesser), *settings, "run.rollouts=0", "run.test_episodes=2", "run.in_flight=1")


@pytest.mark.parametrize("answer", ["die", None])
def test_a_server_that_fails_costs_no_score_and_the_run_resumes(
    run: ScriptedRun, server: Server, answer: Any
) -> None:
    def fails(message: dict[str, Any], state: dict[str, Any]) -> Any:
        return answer if message["type"] == "step" else guessing(message, state)

    server.behaviour = fails
    limit = ("env.timeout_s=3",)
    failed = run.cli(*limit)
    assert "Traceback" not in failed.stderr
    assert {row.termination.is_fault for row in run.data.episodes} == {True}
    server.behaviour = guessing
    done = run.cli(*limit, "run.retry_faults=true")
    assert done.returncode == 0
    assert {row.score for row in run.data.episodes} == {1.0}


def test_one_that_ignores_its_seed_is_refused_with_both_hashes(run: ScriptedRun, server: Server) -> None:
    views = iter(range(1000))
    server.behaviour = lambda message, state: {"observation": {"text": f"Room {next(views)}."}}
    done = run.cli()
    assert "ignores its seed: two starts with seed" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
