"""Runs that are not what their configuration plans, with checksums that fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speedrunner.findings import Finding
from speedrunner.store.json_records import write_record
from speedrunner.store.records import TrainingEnd
from speedrunner.store.run_data import load
from speedrunner.verification.plan_check import Plan
from tests.scripted_runs import Runs, ScriptedRun, script
from tests.tampered_runs import change, copy_of, seal, subject, told


def checked(run: Path) -> Finding:
    return Plan(subject(run)).check()


def state(run: Path, edit: Callable[[Any], object]) -> None:
    """Change what a run says to be finished."""
    found = load(run).state
    edit(found)
    write_record(run / "state.json", found)
    seal(run)


TRAINED = "trajectories/batch_0000.jsonl"

RECORDS: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "task": (TRAINED, lambda it: it["task"].update(index=5), "its task: recorded is "),
    "policy": (TRAINED, lambda it: it.update(policy=1), "its policy: recorded is '1', and it should be '0'"),
    "key": (TRAINED, lambda it: it.update(episode="train/0009"), "train/0009: it is not planned"),
    "batch": (TRAINED, lambda it: it.update(episode="train/0002"), "number of its batch or checkpoint"),
    "checkpoint": (
        "evaluations/0002.jsonl",
        lambda it: it.update(episode=it["episode"].replace("0002", "0004")),
        "number of its batch or checkpoint: recorded is '2', and it should be '4'",
    ),
    "rollouts of a sleep": (
        "sleeps/0001.json",
        lambda it: it.update(rollouts=1),
        "sleep/0001: rollouts before",
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_is_not_planned(learnt: ScriptedRun, tmp_path: Path, name: str) -> None:
    file, edit, expected = RECORDS[name]
    run = copy_of(learnt.dir, tmp_path)
    change(run, file, edit)
    found = told(checked(run))
    assert any(expected in each for each in found), found


def test_a_task_that_is_trained_on_twice(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    first = learnt.data.trajectories(0)[0].task
    change(run, "trajectories/batch_0001.jsonl", lambda it: it["task"].update(index=first.index))
    assert any("its task was trained on in train/000" in each for each in told(checked(run)))


def test_an_episode_or_a_sleep_that_is_missing(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    lines = (run / TRAINED).read_text().splitlines(keepends=True)
    (run / TRAINED).write_text(lines[0])
    (run / "sleeps/0002.json").unlink()
    key = json.loads(lines[1])["episode"]
    assert told(checked(run)) == [
        f"{key}: it is missing, and wake/0000 is finished",
        "sleep/0002: it is missing, and finished",
    ]


STATES: dict[str, tuple[Callable[[Any], object], str]] = {
    "another step": (
        lambda it: it.finished.append("wake/0007-0123456789ab"),
        "finished, and it is not planned",
    ),
    "another content": (
        lambda it: it.finished.append("wake/0000-0123456789ab"),
        "wake/0000-0123456789ab is finished, and the plan's is wake/0000-",
    ),
    "another order": (lambda it: it.finished.reverse(), "not finished in the order of the plan"),
    "a step left out": (
        lambda it: it.finished.remove(next(key for key in it.finished if key.startswith("sleep/0001"))),
        "not finished in the order of the plan",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_step_that_is_not_planned(learnt: ScriptedRun, tmp_path: Path, name: str) -> None:
    edit, expected = STATES[name]
    run = copy_of(learnt.dir, tmp_path)
    state(run, edit)
    (difference,) = told(checked(run))
    assert difference.startswith("state.json: ")
    assert expected in difference


def test_another_configuration(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("test_episodes: 2", "test_episodes: 1"))
    found = told(checked(run))
    assert any("evaluate/0000-" in each for each in found)


class TestATrainingThatEndsByItsBudget:
    async def test_it_is_told_and_its_end_is_checked(self, corridor: Runs, tmp_path: Path) -> None:
        run = corridor(script(), "run.budget_tokens=1")
        await run.play()
        check = checked(run.dir)
        assert check.level == "ok"
        assert "training ended before its plan did, by its budget" in check.text
        end = load(run.dir).training_end
        assert end is not None

        other = copy_of(run.dir, tmp_path / "other")
        state(other, lambda it: setattr(it, "training_end", TrainingEnd(end.rollouts + 1, end.sleeps)))
        assert any("rollouts at the end of training" in each for each in told(checked(other)))

        unspent = copy_of(run.dir, tmp_path / "unspent")
        text = (unspent / "config.yaml").read_text()
        (unspent / "config.yaml").write_text(text.replace("budget_tokens: 1\n", "budget_tokens: 9000000\n"))
        assert any("and run.budget_tokens=9000000" in each for each in told(checked(unspent)))

    def test_nothing_begins_when_it_is_spent(self, learnt: ScriptedRun, tmp_path: Path) -> None:
        run = copy_of(learnt.dir, tmp_path)
        text = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(text.replace("budget_tokens: null", "budget_tokens: 10"))
        found = told(checked(run))
        assert found[0] == "requests.jsonl: sleep of policy 0 begins after run.budget_tokens are spent"
