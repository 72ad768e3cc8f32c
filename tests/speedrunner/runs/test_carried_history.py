"""A run that starts from another run's policy, with that run's training history or without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from speedrunner.runs.verification.verify import verify
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import call
from tests.scripted_runs import Runs, ScriptedRun, script
from tests.tampered_runs import names

ASK = call("execute_code", code="batches(), versions(), [each['sleep'] for each in sleeps()]")
SHORT = ("run.rollouts=2", "run.eval_every=2", "run.test_episodes=1")


@pytest.fixture(scope="module")
def second(learnt: ScriptedRun, shared_corridor: Runs) -> ScriptedRun:
    """A run that started from the finished run; its inducer asked what is recorded."""
    run = shared_corridor(script(inducer=(ASK,)), *SHORT)
    first = shutil.copytree(learnt.dir, run.folder / "first")
    run.settings.append(f"run.start_from={first}")
    return run.finish()


@pytest.fixture
def moved(second: ScriptedRun) -> Iterator[Path]:
    """A copy of that run, while the run from which it started is elsewhere."""
    first = second.folder / "first"
    elsewhere = first.rename(second.folder / "elsewhere")
    yield second.copy().dir
    elsewhere.rename(first)


def read_by_inducer(run: ScriptedRun) -> list[str]:
    """Return what the inducer read before each of its turns."""
    (sleep,) = run.data.sleeps
    return [turn.messages[-1].content for turn in sleep.agents[0].turns]


def test_the_inducer_reads_the_history_of_both_runs(second: ScriptedRun) -> None:
    first, then, *_ = read_by_inducer(second)
    assert "([-2, -1, 0], [-2, -1, 0], [-1, 0])" in then
    assert "Your earlier work was in tests.toy_env:Corridor. Now you work in" in first
    assert "sleep 0: " in first
    assert "6 episodes are recorded in total" in first


async def test_or_its_own_alone(second: ScriptedRun) -> None:
    alone = replace(second, name="alone")
    await alone.play("run.carry_history=false")
    first, then, *_ = read_by_inducer(alone)
    assert "([0], [0], [])" in then
    assert "earlier" not in first
    assert not (alone.dir / "carried").exists()


async def test_such_a_run_can_be_verified_after_both_have_moved(moved: Path) -> None:
    found = await verify(moved, lambda line: None, lambda check: None, names(moved))
    assert {check.level for check in found.findings} == {"ok"}
    (moved / "carried/0000/trajectories/batch_0001.jsonl").open("a").write("{}\n")
    found = await verify(moved, lambda line: None, lambda check: None, names(moved))
    assert {check.name for check in found.findings if check.level == "failed"} == {"policies"}


async def test_a_run_with_another_carried_history_is_another_run(second: ScriptedRun) -> None:
    other = second.copy()
    with pytest.raises(RunDirectoryError, match=r"run\.carry_history: True -> False|carry_history"):
        await other.play("run.carry_history=false")
    state = other.dir / "state.json"
    state.write_text(state.read_text().replace("evaluate/0002", "evaluate/0099"))  # something is left to play
    shutil.rmtree(other.dir / "carried")
    with pytest.raises(RunDirectoryError, match="history: "):
        await other.play()
