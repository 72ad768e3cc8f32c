"""Whole runs, verified as they were recorded."""

from __future__ import annotations

import json
import os
import signal
from math import inf
from pathlib import Path

import msgspec
import pytest

from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.shutdown import Interrupted, Shutdown
from speedrunner.store import files
from speedrunner.store.json_records import own_digest, write_record
from speedrunner.store.records import FORMAT, Termination
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from speedrunner.verification.replay import BY_THE_CLOCK
from speedrunner.verification.verify import check_files, verify
from tests.scripted_engine import Answer, Request, call, refuse
from tests.scripted_runs import LEARN, Runs, ScriptedRun, flag, script, walker
from tests.speedrunner.methods.test_asi import STRIDE, inducer
from tests.speedrunner.methods.voyager.test_sessions import roles
from tests.tampered_runs import copy_of, names, seal, statuses, told, verified

ALL = ("files", "plan", "policies", "reconciliations", "prompts", "replay")
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
    assert summaries["prompts"].endswith("recorded usage alone in 0); 10 first prompts composed again")
    assert {file: file.read_bytes() for file in learnt.dir.rglob("*") if file.is_file()} == before


async def test_every_record_has_a_checksum(learnt: ScriptedRun) -> None:
    names = {str(file.relative_to(learnt.dir)) for file in learnt.dir.rglob("*") if file.is_file()}
    directory = load(learnt.dir)
    assert names - directory.state.checksums.keys() == {"state.json", "workers.log"}
    assert check_files(directory, inf).level == "ok"


@pytest.mark.parametrize(
    "name",
    [
        *("config.yaml", "processes.jsonl", "episodes.jsonl", "requests.jsonl", "tools.jsonl"),
        "reconciliation.jsonl",
        *(f"policies/v0001/{name}" for name in ("skills.py", "library.json", "notes.md", "method.json")),
        *("trajectories/batch_0001.jsonl", "evaluations/0002.jsonl", "sleeps/0001.json"),
    ],
)
def test_one_byte_that_is_changed_is_found(learnt: ScriptedRun, tmp_path: Path, name: str) -> None:
    run = copy_of(learnt.dir, tmp_path)
    content = (run / name).read_bytes()
    if not content:  # prose that is not there: one byte is one more
        (run / name).write_bytes(b"x")
    for place in {0, len(content) // 3, len(content) // 2, len(content) - 1} if content else {0}:
        if content:
            (run / name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        (difference,) = check_files(load(run), inf).details
        assert difference.startswith(f"{name}: ")
    (run / name).unlink()
    if name == "config.yaml":
        return
    assert told(check_files(load(run), inf)) == [f"{name}: is missing"]


@pytest.mark.parametrize("step", [50, pytest.param(1, marks=pytest.mark.slow)])
def test_so_is_one_of_the_state_itself(learnt: ScriptedRun, tmp_path: Path, step: int) -> None:
    run = copy_of(learnt.dir, tmp_path)
    content = (run / "state.json").read_bytes()
    for place in range(0, len(content), step):
        (run / "state.json").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            where = check_files(load(run), inf).details[0]
        except files.StorageError as error:  # it is no JSON any more, or of another layout
            where = str(error)
        assert "state.json" in where
    (run / "state.json").unlink()
    (difference,) = check_files(load(run), inf).details
    assert difference == "state.json: is missing, although episodes were played"


async def test_what_cannot_be_read_any_more_is_told_with_the_file_that_was_changed(
    learnt: ScriptedRun, tmp_path: Path
) -> None:
    run = copy_of(learnt.dir, tmp_path)
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("rollouts: 4", "rollouts: x"))
    found = await verified(run)
    assert statuses(found) == {"files": "failed"} | dict.fromkeys(ALL[1:], "not checked")
    assert found["files"].details[0].startswith("config.yaml: ")
    assert "run.rollouts" in found["plan"].text
    seal(run)
    with pytest.raises(InvalidConfig, match=r"run\.rollouts"):
        await verified(run)


async def test_removed_checksums_are_reported(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    state = load(run).state
    early = {"finished": state.finished, "format": FORMAT}
    (run / "state.json").write_text(json.dumps(early, indent=2))
    taken_off = await verified(run)
    assert statuses(taken_off) == GOOD | {"files": "failed"}
    assert taken_off["files"].details == ["state.json: does not match its own checksum"]


class TestAnUnfinishedRun:
    async def test_it_verifies_as_far_as_it_goes_and_again_when_it_has_gone_on(self, corridor: Runs) -> None:
        def actor(request: Request) -> Answer:
            if flag(request) == 4 and request.turn == 1 and not shutdown.requested:
                os.kill(os.getpid(), signal.SIGTERM)
            return walker(request)

        shutdown = Shutdown(lambda line: None, 60.0)
        run = corridor(script(actor, LEARN))
        with pytest.raises(Interrupted):
            await run.play(shutdown=shutdown)
        found = await verified(run.dir)
        assert statuses(found) == GOOD
        assert found["plan"].text.endswith("not finished: checked as far as it goes")
        assert "have no checksum" not in found["files"].text  # its process gave it back
        run.server.script = script(walker, LEARN)
        await run.play()
        found = await verified(run.dir)
        assert statuses(found) == GOOD
        assert found["plan"].text == "10 of 10 planned episodes and 2 of 2 sleeps"

    async def test_a_killed_process_leaves_tails_without_a_checksum(
        self, learnt: ScriptedRun, tmp_path: Path
    ) -> None:
        run = copy_of(learnt.dir, tmp_path)
        state = load(run).state
        last = state.finished.pop()
        assert last.startswith("evaluate/0004")
        del state.checksums["evaluations/0004.jsonl"], state.checksums["reconciliation.jsonl"]
        state.digest = own_digest(state)
        write_record(run / "state.json", state)
        torn = (run / "evaluations/0004.jsonl").read_bytes()[:-100]
        (run / "evaluations/0004.jsonl").write_bytes(torn)
        found = await verified(run)
        assert statuses(found) | {"reconciliations": ""} == GOOD | {"reconciliations": ""}
        assert found["files"].text.endswith("reconciliation.jsonl, evaluations/0004.jsonl have no checksum")

    async def test_the_next_process_accepts_no_foreign_change(
        self, learnt: ScriptedRun, tmp_path: Path
    ) -> None:
        run = copy_of(learnt.dir, tmp_path)
        content = (run / "requests.jsonl").read_bytes()
        (run / "requests.jsonl").write_bytes(content.replace(b'"cached":', b'"cached": ', 1)[:-1] + b"\n")
        with RunDirectory.open_for_writing(run) as directory:
            directory.append_request(directory.read().ledger[0])
        (difference,) = check_files(load(run), inf).details
        assert difference.startswith("requests.jsonl: ")


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
    (attempt, *_) = run.data.sleeps[0].attempts
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


async def test_crafter_played_by_programs(corridor: Runs, tmp_path: Path) -> None:
    east = 'def go_east(steps: int = 3) -> str:\n    """Walk east."""\n' + (
        "    for _ in range(steps):\n        move_east()\n    return get_current_observation()"
    )
    beyond = (
        'def wander() -> str:\n    """Go east, and chop."""\n    go_east(2)\n    do()\n    return go_east(1)'
    )

    def pupil(request: Request) -> Answer:
        if "run_program" not in request.tools:
            return call("go_east", steps=2) if "go_east" in request.tools else call("move_east")
        return call("run_program", source=beyond if "- go_east(" in request.system else east)

    run = corridor(
        roles(pupil, objectives=("walk", "wander", "rest")),
        *("env=crafter", "method=voyager", "run.rollouts=2", "run.eval_every=4", "model.actor.max_calls=8"),
    )
    await run.play()
    assert len(run.data.policies.load(1).skills) >= 2
    found = await verified(run.dir)
    assert statuses(found) == GOOD
    assert "left out" not in found["replay"].text


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


async def test_what_is_not_checked_in_time_is_not_taken_for_right(learnt: ScriptedRun) -> None:
    found = await verify(learnt.dir, lambda line: None, lambda check: None, names(learnt.dir), limit_s=0.0)
    late = {check.name: check.level for check in found.findings if check.is_late}
    assert late == dict.fromkeys(
        ("files", "plan", "policies", "reconciliations", "prompts", "replay"), "not checked"
    )
    assert not found.passed
    assert found.findings[-1].text.startswith("0 calls of 0 episodes; the rest is not checked: the time was")
