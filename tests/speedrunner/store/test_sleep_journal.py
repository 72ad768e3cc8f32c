"""The journal of a sleep: what another process reads of it, and which requests a kill lost."""

from __future__ import annotations

from pathlib import Path

import msgspec

from serving.conversation import Completion
from serving.meter import LedgerRow
from serving.tokens.tools import InvalidCall
from serving.usage import Usage
from speedrunner.store.records import AgentRecord, Termination, Turn
from speedrunner.store.sleep_journal import SleepJournal, SleepStep, find_lost_requests, read_steps
from tests.speedrunner.run_samples import sleep, trajectory


def turn(request: str) -> Turn:
    return Turn(messages=[], text=request, usage=Usage(), seconds=0.0, request=request)


def answer(text: str) -> Completion:
    problem = InvalidCall("no call", "")
    return Completion(text=text, reasoning="", call=None, problem=problem, usage=Usage(), seconds=0.0)


def write(path: Path, steps: list[SleepStep] | None = None, attempt: int = 1) -> SleepJournal:
    """Two agents of sleep 3 with a turn each, and an episode."""
    journal = SleepJournal(path, 3, attempt, steps or [])
    journal.add_turn(0, turn("a"), answer("a"), overflowed=False)
    journal.add_episode(0, trajectory("sleep/0003/again/0000"))
    journal.add_turn(1, turn("b"), answer("b"), overflowed=True)
    return journal


def test_another_process_finds_each_step_where_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "sleep.jsonl"
    write(path)
    steps = read_steps(path, 3)
    assert (len(steps), read_steps(path, 4)) == (3, [])
    journal = SleepJournal(path, 3, 1, steps)
    for agent, overflowed in ((0, False), (1, True)):
        (step,) = journal.agent_steps(agent)
        assert step.turn == turn("ab"[agent])
        assert step.completion == msgspec.structs.replace(answer("ab"[agent]), problem=None)
        assert step.overflowed == overflowed
    assert journal.episode(0) == trajectory("sleep/0003/again/0000")
    assert (journal.episode(1), journal.agent_steps(2)) == (None, [])
    assert read_steps(path, 3) == steps  # the journal begins with them


def test_the_time_of_earlier_processes_counts(tmp_path: Path) -> None:
    steps = [SleepStep(sleep=3, attempt=1, seconds=seconds, number=0) for seconds in (100.0, 250.0)]
    journal = SleepJournal(tmp_path / "sleep.jsonl", 3, 1, steps)
    assert journal.seconds >= 250.0


def test_a_step_is_noted_after_its_ledger_rows_are_safe(tmp_path: Path) -> None:
    called: list[str] = []
    path = tmp_path / "sleep.jsonl"
    journal = SleepJournal(
        path,
        3,
        1,
        [],
        lambda: called.append("prepare"),
        lambda: called.append(f"note {path.stat().st_size > 0}"),
    )
    journal.add_episode(0, trajectory())
    assert called == ["prepare", "prepare", "note True"]


def test_requests_that_a_kill_lost_are_those_of_this_attempt_without_an_answer() -> None:
    def row(request: str, attempt: str = "1", key: str = "sleep/0001", wasted: bool = False) -> LedgerRow:
        return LedgerRow(
            request=request, retry=0, time=1.0, labels={"episode": key, "attempt": attempt}, model="m",
            status="ok", wasted=wasted, usage=None, seconds=1.0,
        )  # fmt: skip

    record = sleep(1)
    record.agents = [AgentRecord("inducer", [turn("used")], Termination.SUBMITTED)]
    record.attempts = [trajectory("sleep/0001/again/0000", turns=[turn("again")])]
    rows = [row("used"), row("again"), row("lost"), row("wasted", wasted=True), row("old", attempt="2")]
    assert find_lost_requests([*rows, row("other", key="sleep/0002")], record) == ["lost"]
