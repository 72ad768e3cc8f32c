"""The journal of a sleep: what another process reads of it."""

from __future__ import annotations

from pathlib import Path

from serving.conversation import Completion
from serving.tokens.tools import InvalidCall
from serving.usage import Usage
from speedrunner.store.records import Turn
from speedrunner.store.sleep_journal import SleepJournal, SleepStep, read_steps
from tests.speedrunner.run_samples import trajectory


def turn(request: str) -> Turn:
    return Turn(messages=[], text=request, usage=Usage(), seconds=0.0, error="no call", request=request)


def answer(text: str, overflows: bool = False) -> Completion:
    problem, used = InvalidCall("no call", ""), Usage()
    return Completion(
        text=text, reasoning="", call=None, problem=problem, usage=used, seconds=0.0, overflows=overflows
    )


def write(path: Path, steps: list[SleepStep] | None = None, attempt: int = 1) -> SleepJournal:
    """Two agents of sleep 3 with a turn each, and an episode."""
    journal = SleepJournal(path, 3, attempt, steps or [])
    journal.add_turn(0, turn("a"), answer("a"))
    journal.add_episode(0, trajectory("sleep/0003/again/0000"))
    journal.add_turn(1, turn("b"), answer("b", overflows=True))
    return journal


def test_another_process_finds_each_step_where_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "sleep.jsonl"
    write(path)
    steps = read_steps(path, 3)
    assert (len(steps), read_steps(path, 4)) == (3, [])
    journal = SleepJournal(path, 3, 1, steps)
    for agent, overflowed in ((0, False), (1, True)):
        (step,) = journal.turns(agent)
        assert (step.turn, step.answer.text) == (turn("ab"[agent]), "ab"[agent])
        assert str(step.answer.problem) == "no call"
        assert step.answer.overflows == overflowed
    assert journal.episode(0) == trajectory("sleep/0003/again/0000")
    assert (journal.episode(1), journal.turns(2)) == (None, [])
    assert read_steps(path, 3) == steps  # the journal begins with them


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
