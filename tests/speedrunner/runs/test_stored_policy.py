"""Policies of finished runs: evaluated, and started from with the training history or without it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.planned_runs import PlannedRun
from speedrunner.runs.player import play_runs
from speedrunner.runs.setup import Setup, set_up
from speedrunner.runs.shutdown import Shutdown
from speedrunner.runs.stored_setup import evaluation_config
from speedrunner.runs.verification.verify import verify
from speedrunner.store.run_data import load
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import call
from tests.scripted_runs import CORRIDOR, PLANNED, Runs, ScriptedRun, in_process, keys, script
from tests.tampered_runs import names


@pytest.mark.parametrize(("version", "calls"), [("", 1), (":v0", 7)])
def test_a_stored_policy_is_evaluated_without_training(
    learnt_copy: ScriptedRun, version: str, calls: int, tmp_path: Path
) -> None:
    changes = [*learnt_copy.arguments, "run.test_episodes=1", f"run.dir={tmp_path / 'new'}"]
    setup = set_up(evaluation_config(f"{learnt_copy.dir}{version}", changes, [CORRIDOR]))
    playing = play_runs([PlannedRun(setup)], Console(quiet=True), Shutdown(print))
    (reconciliation,) = asyncio.run(playing).reconciliations
    assert reconciliation.agrees
    (row,) = load(tmp_path / "new").episodes
    assert (row.episode, row.policy, row.llm_calls) == ("test/0000/0000", 0, calls)
    assert keys(learnt_copy.data) == PLANNED


def test_an_evaluation_has_a_directory_of_its_own_by_default(learnt_copy: ScriptedRun) -> None:
    words = "run", f"run.start_from={learnt_copy.dir}:1", "run.rollouts=0", "run.test_episodes=1"
    done = in_process(*words, *learnt_copy.arguments, "--trust", CORRIDOR)
    assert done.returncode == 0, done.stderr
    (folder,) = learnt_copy.folder.glob("run-eval-v0001-*")
    assert "they agree to the token" in done.stdout
    evaluated = load(folder)
    assert evaluated.config["run"]["start_from"] == f"{learnt_copy.dir}:1"
    assert [row.llm_calls for row in evaluated.episodes] == [1]
    assert not (folder / "carried").exists()  # the history is only for training
    # It is not taken for this run's evaluation again, as it may have come with the run.
    settings = [*learnt_copy.arguments, "run.test_episodes=1", f"env={CORRIDOR}"]
    with pytest.raises(InvalidConfig, match=r"already contains a run.* run.dir="):
        evaluation_config(f"{learnt_copy.dir}:1", settings, [CORRIDOR])
    named = evaluation_config(f"{learnt_copy.dir}:1", [*settings, f"run.dir={folder}"], [CORRIDOR])
    assert named.run.dir == str(folder)
    shown = ([], ["library.visible_last=2"], ["library.visible_last=1"])
    source, given = f"{learnt_copy.dir}:2", [*settings, "run.seed=1"]
    assert len({evaluation_config(source, [*given, *each], [CORRIDOR]).run.dir for each in shown}) == 3


def test_the_run_s_server_is_gone_unless_one_is_named(learnt_copy: ScriptedRun) -> None:
    assert learnt_copy.data.config["serving"]["url"] is not None
    trust = names(learnt_copy.dir)
    assert evaluation_config(f"{learnt_copy.dir}", [], trust).serving.url is None
    other = evaluation_config(f"{learnt_copy.dir}", ["serving.url=unix:/other"], trust)
    assert other.serving.url == "unix:/other"


def two_skills(run: ScriptedRun, folder: Path) -> Path:
    """A copy of the run whose library has a second, newer skill, which calls the first."""
    shutil.copytree(run.dir, folder)
    newest = max((folder / "policies").iterdir())
    skills = newest / "skills.py"
    skills.write_text(
        skills.read_text() + '\n\ndef again() -> str:\n    """Once more."""\n    return to_flag()\n'
    )
    index = json.loads((newest / "library.json").read_text())
    index["skills"].append(index["skills"][0] | {"name": "again"})
    (newest / "library.json").write_text(json.dumps(index))
    return folder


def evaluation_of(run: ScriptedRun, source: Path, part: str) -> Setup:
    """Set up an evaluation of a part of a run's library."""
    changes = [*run.arguments, "run.test_episodes=1", f"library.{part}"]
    return set_up(evaluation_config(f"{source}", changes, [CORRIDOR]))


BOTH = ["again", "to_flag"]


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ("visible_last=0", []),
        ("visible_last=1", ["again"]),
        ("visible_last=2", BOTH),
        ("visible_last=9", BOTH),
    ],
)
def test_an_evaluation_may_show_a_part_of_the_library(
    learnt_copy: ScriptedRun, part: str, shown: list[str], tmp_path: Path
) -> None:
    """The last skills: paper, "Post-hoc Library Truncation on Voyager"."""
    setup = evaluation_of(learnt_copy, two_skills(learnt_copy, tmp_path / "source"), part)
    assert setup.config.run.dir.endswith(part.replace("visible_last=", "-visible_last"))
    library = setup.actor_spec(setup.initial_policy()).with_part(setup.config.library).library
    assert sorted(library.by_name) == BOTH
    assert [tool.name for tool in library.tools()] == ["walk", "look", *shown]


async def test_it_plays_with_that_part(learnt_copy: ScriptedRun, tmp_path: Path) -> None:
    learnt_copy.server.script = lambda request: call("again")
    setup = evaluation_of(learnt_copy, two_skills(learnt_copy, tmp_path / "source"), "visible_last=1")
    await play_runs([PlannedRun(setup)], Console(quiet=True), Shutdown(print))
    (row,) = load(setup.config.run.dir).episodes
    assert (row.success, row.llm_calls) == (True, 1)
    (asked,) = (each for each in learnt_copy.server.requests if "walk" in each.tools)
    assert list(asked.tools) == ["walk", "look", "again"]


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
