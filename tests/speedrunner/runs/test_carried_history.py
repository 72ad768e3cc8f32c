"""A run that starts from another run's policy, with that run's training history or without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.store.stored_run import RunDirectoryError
from speedrunner.verification.verify import verify
from tests.scripted_engine import Request, ScriptedEngine, call
from tests.scripted_runs import ScriptedRun, script
from tests.tampered_runs import names

ASK = call("execute_code", code="batches(), versions(), [each['sleep'] for each in sleeps()]")
SHORT = ("run.rollouts=2", "run.eval_every=2", "run.test_episodes=1")


@pytest.fixture
def second(learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer, tmp_path: Path) -> Iterator[ScriptedRun]:
    """A run that starts from the finished run; its inducer asks what is recorded."""
    shutil.copytree(learnt.dir, tmp_path / "first")
    with ScriptedEngine(tiny_tokenizer, script(inducer=(ASK,))) as engine:
        settings = [*learnt.settings, *SHORT, f"run.start_from={tmp_path / 'first'}"]
        yield ScriptedRun(tmp_path, learnt.model_config, engine, settings, name="second")


def inducing(run: ScriptedRun) -> list[Request]:
    """Return the inducer's requests."""
    return [request for request in run.server.requests if "write_skill" in request.tools]


async def test_the_inducer_reads_the_history_of_both_runs(second: ScriptedRun) -> None:
    await second.play()
    first, then, *_ = inducing(second)
    assert "([-2, -1, 0], [-2, -1, 0], [-1, 0])" in then.last
    assert "Your earlier work was in tests.toy_env:Corridor. Now you work in" in first.last
    assert "sleep 0: " in first.last
    assert "6 episodes are recorded in total" in first.last


async def test_or_its_own_alone(second: ScriptedRun) -> None:
    await second.play("run.carry_history=false")
    first, then, *_ = inducing(second)
    assert "([0], [0], [])" in then.last
    assert "earlier" not in first.last
    assert not (second.dir / "carried").exists()


async def test_a_run_without_training_copies_no_history(second: ScriptedRun) -> None:
    await second.play("run.rollouts=0")
    assert not (second.dir / "carried").exists()


async def test_such_a_run_can_be_verified_after_both_have_moved(second: ScriptedRun, tmp_path: Path) -> None:
    await second.play()
    (tmp_path / "first").rename(tmp_path / "elsewhere")
    moved = second.dir.rename(tmp_path / "moved")
    found = await verify(moved, lambda line: None, lambda check: None, names(moved))
    assert {check.level for check in found.findings} == {"ok"}
    (moved / "carried/0000/trajectories/batch_0001.jsonl").open("a").write("{}\n")
    found = await verify(moved, lambda line: None, lambda check: None, names(moved))
    assert {check.name for check in found.findings if check.level == "failed"} == {"files", "policies"}


async def test_a_run_with_another_carried_history_is_another_run(second: ScriptedRun) -> None:
    await second.play()
    other = second.copy()
    with pytest.raises(RunDirectoryError, match=r"run\.carry_history: True -> False|carry_history"):
        await other.play("run.carry_history=false")
    state = other.dir / "state.json"
    state.write_text(state.read_text().replace("evaluate/0002", "evaluate/0099"))  # something is left to play
    shutil.rmtree(other.dir / "carried")
    with pytest.raises(RunDirectoryError, match="history: "):
        await other.play()
