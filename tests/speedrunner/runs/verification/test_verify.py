"""Whole runs, verified as they were recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.errors import SpendingCapReached
from speedrunner.plain.findings import Finding
from speedrunner.runs.verification.record_checks import check_plan
from speedrunner.runs.verification.repeated_calls import BY_THE_CLOCK
from speedrunner.runs.verification.verify import verify
from speedrunner.store.json_records import write_record
from speedrunner.store.records import Termination
from speedrunner.store.run_data import load
from tests.golden_tables import Golden, table
from tests.scripted_engine import Answer, Request, call, refuse
from tests.scripted_runs import LEARN, Runs, ScriptedRun, flag, script, walker
from tests.speedrunner.methods.test_asi import STRIDE, inducer
from tests.tampered_runs import change, copy_of, names, open_checked, statuses, told, verified

ALL = ("plan", "policies", "reconciliations", "replay")
GOOD = dict.fromkeys(ALL, "ok")


async def test_a_run_as_it_was_recorded(learnt: ScriptedRun) -> None:
    before = {file: file.read_bytes() for file in learnt.dir.rglob("*") if file.is_file()}
    found = await verify(learnt.dir, lambda line: None, lambda check: None, names(learnt.dir))
    assert {check.name: check.level for check in found.findings} == GOOD
    assert found.notes == []
    calls = sum(turn.executed is not None for each in learnt.data.trajectories() for turn in each.turns)
    calls += sum(turn.executed is not None for each in learnt.data.evaluations() for turn in each.turns)
    summaries = {check.name: check.text for check in found.findings}
    assert summaries["replay"] == f"{calls} calls of 10 episodes"
    assert summaries["plan"] == "10 of 10 planned episodes and 2 of 2 sleeps"
    assert {file: file.read_bytes() for file in learnt.dir.rglob("*") if file.is_file()} == before


async def test_an_unfinished_run_verifies_as_far_as_it_goes_and_again_at_its_end(corridor: Runs) -> None:
    run = corridor(script(walker, LEARN), api="chat")
    with pytest.raises(SpendingCapReached):
        await run.play("serving.spending_cap_usd=0.03")
    found = await verified(run.dir)
    assert statuses(found) == GOOD
    assert found["plan"].text.endswith("not finished: checked as far as it goes")
    await run.play("serving.spending_cap_usd=1")
    found = await verified(run.dir)
    assert statuses(found) == GOOD
    assert found["plan"].text == "10 of 10 planned episodes and 2 of 2 sleeps"


async def test_what_methods_load_and_do_on_the_way_is_played_again(programmed: ScriptedRun) -> None:
    (first, *_) = programmed.data.trajectories()
    assert first.world is not None
    assert {"load", "turn", "call"} == {key for step in first.world for key in msgspec.to_builtins(step)}
    found = await verified(programmed.dir)
    assert statuses(found) == GOOD
    assert "left out" not in found["replay"].text


async def test_attempts_in_sleeps_are_played_again_with_the_skills_that_they_tried(corridor: Runs) -> None:
    def again(request: Request) -> Answer:
        new = "stride" in request.tools and request.turn == 0
        return call("stride", steps=1) if new else call("walk", steps=9)

    run = corridor(inducer(STRIDE, actor=again), "method=asi_replay", "run.rollouts=2", "run.test_episodes=0")
    await run.play()
    (attempt, *_) = run.data.sleeps[0].episodes
    assert attempt.module
    found = await verified(run.dir)
    assert statuses(found) == GOOD
    assert found["replay"].text == "4 calls of 3 episodes"  # the task again: a stride, and a walk


async def test_what_cannot_be_replayed_is_counted_and_told(corridor: Runs) -> None:
    loop = 'def wait() -> str:\n    """Wait."""\n    while True:\n        look()'

    def actor(request: Request) -> Answer:
        if "wait" in request.tools and request.turn == 0:
            return call("wait")
        if flag(request) == 7 and request.turn == 1:
            return refuse(400, "no")
        return walker(request)

    run = corridor(
        script(actor, (call("write_skill", source=loop, public=True),)),
        *("sandbox.call_wall_s=0.5", "run.rollouts=1", "run.sleep_every=1", "run.eval_every=1"),
    )
    await run.play("run.test_episodes=1")
    assert Termination.ENGINE_ERROR in {row.termination for row in run.data.episodes}
    found = await verified(run.dir)
    assert statuses(found) == GOOD
    summary = found["replay"].text
    assert f"1 left out: {BY_THE_CLOCK}" in summary


@pytest.mark.slow
async def test_scienceworld(corridor: Runs, tmp_path: Path) -> None:
    look = 'def look_twice() -> str:\n    """Look."""\n    look_around()\n    return inventory()'

    def actor(request: Request) -> Answer:
        doors = call("open", obj="door to kitchen"), call("go", location="kitchen"), call("wait")
        return call("look_twice") if "look_twice" in request.tools else doors[min(request.turn, 2)]

    run = corridor(
        script(actor, (call("write_skill", source=look, public=True),)),
        *("env=scienceworld", "env.family=4", "run.rollouts=2", "run.test_episodes=1", "run.eval_every=2"),
        "model.actor.max_calls=4",
    )
    await run.play()
    assert statuses(await verified(run.dir)) == GOOD


def checked(run: Path) -> Finding:
    return check_plan(open_checked(run))


def state(run: Path, edit: Callable[[Any], object]) -> None:
    """Change what a run says to be finished."""
    found = load(run).state
    edit(found)
    write_record(run / "state.json", found)


TRAINED = "trajectories/batch_0000.jsonl"

TESTED = "evaluations/0002.jsonl"

RECORDS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "another task": (TRAINED, lambda it: it["task"].update(index=5)),
    "another policy": (TRAINED, lambda it: it.update(policy=1)),
    "a key that is not planned": (TRAINED, lambda it: it.update(episode="train/0009")),
    "a key of another batch": (TRAINED, lambda it: it.update(episode="train/0002")),
    "a key of another checkpoint": (
        TESTED,
        lambda it: it.update(episode=it["episode"].replace("0002", "0004")),
    ),
    "other rollouts of a sleep": ("sleeps/0001.json", lambda it: it.update(rollouts=1)),
}
STATES: dict[str, Callable[[Any], object]] = {
    "another step": lambda it: it.finished.append("wake/0007-0123456789ab"),
    "another content": lambda it: it.finished.append("wake/0000-0123456789ab"),
}
CONFIGS = {
    "fewer test episodes": ("test_episodes: 2", "test_episodes: 1"),
}


def reconfigure(run: Path, old: str, new: str) -> None:
    """Replace a text of a run's configuration."""
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace(old, new))


def test_what_is_not_planned_is_found(learnt: ScriptedRun, tmp_path: Path, golden: Golden) -> None:
    def copy(name: str) -> Path:
        run = copy_of(learnt.dir, tmp_path / name)
        for file in (run / TRAINED, run / TRAINED.replace("0000", "0001"), run / TESTED):
            lines = sorted(file.read_text().splitlines(), key=lambda line: json.loads(line)["episode"])
            file.write_text("\n".join(lines) + "\n")  # not in the order in which they ended
        return run

    found = {}
    for name, (file, edit) in RECORDS.items():
        change(run := copy(name), file, edit)
        found[name] = told(checked(run))
    for name, edit in STATES.items():
        state(run := copy(name), edit)
        found[f"state: {name}"] = told(checked(run))
    for name, (old, new) in CONFIGS.items():
        reconfigure(run := copy(name), old, new)
        found[f"configuration: {name}"] = told(checked(run))

    run = copy("missing records")
    (run / TRAINED).write_text((run / TRAINED).read_text().splitlines(keepends=True)[0])
    (run / "sleeps/0002.json").unlink()
    found["missing records"] = told(checked(run))
    text = table({name: "\n".join(lines) for name, lines in found.items()})
    golden("verification/changed_plans.txt", re.sub("-[0-9a-f]{12}", "-CONTENT", text))
