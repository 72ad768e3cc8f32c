"""A sleep that is interrupted continues where it was: same conversation, same draft, nothing asked twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from serving.apis.completions import TokenConversation
from serving.errors import ServingError
from speedrunner.agents.loop import Toolbox, ToolReply
from speedrunner.methods.speedrunner.interpreter import Interpreter
from speedrunner.store.run_data import RunData
from speedrunner.store.sleep_journal import SleepJournal, read_steps
from speedrunner.workers.sandbox.isolation import SandboxError
from tests.clocks import Clock
from tests.scripted_engine import Answer, Request, call, refuse, say
from tests.scripted_runs import TO_FLAG, Runs, ScriptedRun, check_finished, script

SPARE = 'def spare() -> str:\n    """Look."""\n    return look()'
INDUCER = (
    call("execute_code", code="import random\nseen = len(load_trajectories())\nseen, random.random()"),
    call("write_skill", source=TO_FLAG, public=True),
    call("write_skill", source="def broken(: pass", public=True),
    call("execute_code", code="'seen' in globals(), library.to_flag.__name__"),
    call("write_skill", source=SPARE, public=False),
    say("I think."),
    call("rename_skill", name="spare", new_name="extra"),
    call("set_visibility", name="extra", public=True),
)
SHORT = ("run.rollouts=2", "run.sleep_every=2", "run.eval_every=2", "run.test_episodes=0")
FAILING = refuse(404, "no such thing")


class Interrupted:
    """A script whose sleep fails at given requests, once each.

    Attributes:
        asked: how often the engine got each request of the sleep, by its turn.
    """

    def __init__(self, *turns: int, inducer: tuple[Answer, ...] = INDUCER) -> None:
        self.left = set(turns)
        self.asked: Counter[int] = Counter()
        self._script = script(inducer=inducer)

    def __call__(self, request: Request) -> Answer:
        if "write_skill" not in request.tools:
            return self._script(request)
        self.asked[request.turn] += 1
        if request.turn in self.left:
            self.left.remove(request.turn)
            return FAILING
        return self._script(request)


async def play_to_the_end(run: ScriptedRun) -> int:
    """Resume a run until it ends; returns how often it was interrupted."""
    for interruptions in range(100):
        try:
            await run.play()
        except ServingError:
            continue
        return interruptions
    raise AssertionError("the run never ends")


@pytest.fixture(scope="module")
def interrupted(shared_corridor: Runs) -> ScriptedRun:
    """A run whose sleep failed at its seventh request."""
    run = shared_corridor(Interrupted(6), *SHORT)
    with pytest.raises(ServingError):
        run.finish()
    return run


@pytest.fixture
def stopped(interrupted: ScriptedRun) -> ScriptedRun:
    """A copy of that run, with an engine that fails no more."""
    run = interrupted.copy()
    run.server.script = script(inducer=INDUCER)
    return run


def learned(data: RunData) -> tuple[object, ...]:
    """The library after the sleep, and what its record has of the edits."""
    (record,) = data.sleeps
    return data.policies.load(1), record.edits


async def test_a_sleep_that_is_interrupted_again_and_again_learns_the_same_and_asks_nothing_twice(
    corridor: Runs,
) -> None:
    whole = corridor(Interrupted(), *SHORT)
    await whole.play()
    turns = range(1, len(INDUCER) + 1, 2)
    broken = Interrupted(*turns)
    run = replace(corridor(broken, *SHORT), name="broken")
    assert await play_to_the_end(run) == len(turns)
    once = dict.fromkeys(range(len(INDUCER) + 1), 1)
    assert broken.asked == once | dict.fromkeys(turns, 2)  # the interrupted request, and the same one again
    assert learned(run.data) == learned(whole.data)
    check_finished(run.dir, ["train/0000", "train/0001"], sleeps=1)
    (record,), (undisturbed,) = run.data.sleeps, whole.data.sleeps
    assert record.attempt == 1
    wasted = [row.labels for row in run.data.requests if row.wasted]
    assert {(labels["episode"], labels["attempt"]) for labels in wasted} == {("sleep/0001", "1")}
    assert [turn.text for turn in record.agents[0].turns] == [
        turn.text for turn in undisturbed.agents[0].turns
    ]
    assert not run.data.files.sleep_journal.exists()


async def test_the_inducers_session_is_what_it_was_and_its_replies_are_the_recorded_ones(
    corridor: Runs,
) -> None:
    run = corridor(Interrupted(1, 3, 5), *SHORT)
    await play_to_the_end(run)
    (record,) = run.data.sleeps
    turns = record.agents[0].turns
    read = ["".join(message.content for message in turn.messages) for turn in turns]
    assert "(True, 'to_flag')" in read[4]  # the variable of the first session, and the draft
    asked = [request for request in run.server.requests if "write_skill" in request.tools]
    (reply,) = {request.messages[3][1] for request in asked if request.turn > 0}
    assert turns[0].executed is not None
    assert str(turns[0].executed.result) in read[1]  # the random number of the first process
    assert read[1] in reply


async def test_an_answer_that_a_kill_lost_counts_as_wasted(stopped: ScriptedRun) -> None:
    journal = stopped.data.files.sleep_journal
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))  # killed before the last turn was on the disk
    await stopped.play()
    (record,) = stopped.data.sleeps
    lost = json.loads(lines[-1])["recorded"]["turn"]["request"]
    wasted = {row.request for row in stopped.data.requests if row.wasted}
    assert lost in wasted
    assert wasted.isdisjoint(turn.request for turn in record.turns)
    check_finished(stopped.dir, ["train/0000", "train/0001"], sleeps=1)


async def test_a_sleep_that_stops_in_a_tool_call_asks_for_that_call_again(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, execute = count(), Interpreter.execute

    async def fail_once(*args: Any) -> object:
        if next(calls) == 3:  # each piece of code is two calls
            raise SandboxError("no process starts")
        return await execute(*args)

    monkeypatch.setattr(Interpreter, "execute", fail_once)
    broken = Interrupted()
    run = corridor(broken, *SHORT)
    with pytest.raises(SandboxError):
        await run.play()
    await run.play()
    assert "sleep/0001 continues after 3 recorded turns and episodes" in run.printed
    assert broken.asked == dict.fromkeys(range(len(INDUCER) + 1), 1) | {3: 2}
    (record,) = run.data.sleeps
    assert (record.attempt, sum(row.wasted for row in run.data.requests)) == (1, 1)
    check_finished(run.dir, ["train/0000", "train/0001"], sleeps=1)


async def test_turns_in_a_journal_count_after_the_wall_clock_too(stopped: ScriptedRun) -> None:
    steps = read_steps(stopped.data.files.sleep_journal, 1)
    steps[-1].seconds = stopped.data.settings.run.sleep_wall_s
    SleepJournal(stopped.data.files.sleep_journal, 1, 1, steps)
    await stopped.play()
    (record,) = stopped.data.sleeps
    assert record.error == (
        "the sleep's 14400 s were over after 6 calls of the inducer; the edits accepted before that are kept"
    )
    assert [skill.name for skill in stopped.data.policies.load(1).skills] == ["to_flag", "spare"]


async def test_repeating_a_sleep_takes_none_of_its_time(
    stopped: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "speedrunner.agents.loop", runs=True)
    for module in ("methods.method_base", "store.sleep_journal"):
        monkeypatch.setattr(f"speedrunner.{module}.time", clock)
    calls, execute = count(), Toolbox.execute

    async def repeat_slowly(*args: Any) -> ToolReply:
        if next(calls) < 5:  # the five recorded calls
            clock.advance(stopped.data.settings.run.sleep_wall_s)
        return await execute(*args)

    monkeypatch.setattr(Toolbox, "execute", repeat_slowly)
    await stopped.play()
    (record,) = stopped.data.sleeps
    assert (record.error, len(record.agents[0].turns)) == (None, len(INDUCER) + 1)
    assert record.seconds < stopped.data.settings.run.sleep_wall_s


async def test_a_sleep_continues_before_a_turn_that_was_half_written(stopped: ScriptedRun) -> None:
    journal = stopped.data.files.sleep_journal
    first, second, *_ = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first + second[:-20])
    await stopped.play()
    assert "sleep/0001 continues after 1 recorded turns and episodes" in stopped.printed
    check_finished(stopped.dir, ["train/0000", "train/0001"], sleeps=1)
    assert [skill.name for skill in stopped.data.policies.load(1).skills] == ["to_flag", "extra"]


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("result", "a recorded turn was not repeated"),
        ("error", "its call of write_skill did not end as recorded"),
    ],
)
async def test_a_sleep_that_does_not_repeat_its_journal_starts_over(
    stopped: ScriptedRun, field: str, why: str
) -> None:
    steps = read_steps(stopped.data.files.sleep_journal, 1)
    assert steps[1].recorded is not None
    executed = steps[1].recorded.turn.executed
    assert executed is not None
    setattr(executed, field, "what an earlier version answered")
    SleepJournal(stopped.data.files.sleep_journal, 1, 1, steps)
    await stopped.play()
    assert f"sleep/0001 starts over, because {why}" in stopped.printed
    check_finished(stopped.dir, ["train/0000", "train/0001"], sleeps=1)
    (record,) = stopped.data.sleeps
    assert record.attempt == 2


async def test_time_in_the_admission_queue_does_not_count(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "speedrunner.agents.loop", runs=True)
    for module in ("methods.method_base", "store.sleep_journal"):
        monkeypatch.setattr(f"speedrunner.{module}.time", clock)

    async def queue(conversation: TokenConversation) -> float:
        if conversation._labels["role"] != "inducer":  # workers start meanwhile, which has a limit
            return 0.0
        clock.advance(3600.0)
        return 3600.0

    monkeypatch.setattr(TokenConversation, "ready", queue)
    run = corridor(Interrupted(6), *SHORT, "run.sleep_wall_s=7200")
    with pytest.raises(ServingError):
        await run.play()
    await run.play()
    (record,) = run.data.sleeps
    assert (record.error, len(record.agents[0].turns)) == (None, len(INDUCER) + 1)
    assert record.seconds > 3600 * len(record.agents[0].turns)


async def test_a_sleep_ends_at_its_wall_clock_and_keeps_what_was_accepted(corridor: Runs) -> None:
    slow = (*INDUCER[:2], call("execute_code", code="import time\ntime.sleep(2)"), *INDUCER[2:])
    run = corridor(Interrupted(inducer=slow), *SHORT, "run.sleep_wall_s=2")
    await run.play()
    (record,) = run.data.sleeps
    assert record.error == (
        f"the sleep's 2 s were over after {len(record.agents[0].turns)} calls of the inducer;"
        " the edits accepted before that are kept"
    )
    assert {edit.error for edit in record.edits} <= {None}
