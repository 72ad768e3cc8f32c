"""Policies of finished runs, evaluated and started from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.runs.drain import Drain
from speedrunner.runs.run import run as carry_out
from speedrunner.runs.setup import set_up
from speedrunner.runs.stored_policy import evaluation_config, stored_policy
from speedrunner.store.data import load
from tests.scripted_engine import ScriptedEngine
from tests.scripted_runs import CORRIDOR, PLANNED, ScriptedRun, in_process, keys


@pytest.fixture
def learnt(learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer) -> Iterator[ScriptedRun]:
    """The run, with an engine of its own, so that the run's stands as it was left."""
    with ScriptedEngine(tiny_tokenizer, learnt.server.script) as engine:
        yield ScriptedRun(learnt.folder, learnt.card, engine, learnt.settings)


@pytest.mark.parametrize(("version", "calls"), [("", 1), (":1", 1), (":v0", 7)])
def test_a_stored_policy_is_evaluated_without_training(
    learnt: ScriptedRun, version: str, calls: int, tmp_path: Path
) -> None:
    changes = [*learnt.arguments, "run.test_episodes=1", f"run.dir={tmp_path}"]
    setup = set_up(evaluation_config(f"{learnt.dir}{version}", changes))
    (balance,) = asyncio.run(carry_out(setup, Console(quiet=True), Drain(print)))
    assert balance.agrees
    (row,) = load(tmp_path).episodes
    assert (row.episode, row.policy, row.llm_calls) == ("test/0000/0000", 0, calls)
    assert keys(learnt.data) == PLANNED


def test_an_evaluation_has_a_directory_of_its_own_by_default(learnt: ScriptedRun) -> None:
    done = in_process("eval", f"{learnt.dir}:1", *learnt.arguments, "run.test_episodes=1", f"env={CORRIDOR}")
    assert done.returncode == 0, done.stderr
    (folder,) = learnt.folder.glob("run-eval-v0001-*")
    assert "they agree to the token" in done.stdout
    assert load(folder).config["run"]["start_from"] == f"{learnt.dir}:1"


def test_the_run_s_server_is_gone_unless_one_is_named(learnt: ScriptedRun) -> None:
    assert learnt.data.config["serving"]["url"] is not None
    assert evaluation_config(f"{learnt.dir}", []).serving.url is None
    assert evaluation_config(f"{learnt.dir}", ["serving.url=unix:/other"]).serving.url == "unix:/other"


async def test_another_run_may_start_from_its_policy(learnt: ScriptedRun) -> None:
    other = ScriptedRun(learnt.folder / "other", learnt.card, learnt.server, learnt.settings)
    other.folder.mkdir()
    await other.play(f"run.start_from={learnt.dir}:1", "run.rollouts=2", "run.eval_every=2")
    assert [row.llm_calls for row in other.data.episodes] == [1] * 6
    assert other.data.policies.load(0) == stored_policy(f"{learnt.dir}:1")
