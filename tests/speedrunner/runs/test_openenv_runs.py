"""Runs on an OpenEnv server that dies or ignores its seed: an error, and the run resumes."""

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


async def test_a_server_that_dies_costs_no_score_and_the_run_resumes(
    run: ScriptedRun, server: Server
) -> None:
    def dies(message: dict[str, Any], state: dict[str, Any]) -> Any:
        return "die" if message["type"] == "step" else guessing(message, state)

    server.behaviour = dies
    await run.play()
    assert {row.termination.is_fault for row in run.data.episodes} == {True}
    server.behaviour = guessing
    await run.play("run.retry_faults=true")
    assert {row.score for row in run.data.episodes} == {1.0}


async def test_one_that_ignores_its_seed_is_refused_with_both_hashes(
    run: ScriptedRun, server: Server
) -> None:
    views = iter(range(1000))
    server.behaviour = lambda message, state: {"observation": {"text": f"Room {next(views)}."}}
    await run.play()
    assert "ignores its seed: two starts with seed" in run.printed
