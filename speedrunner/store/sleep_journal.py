"""The journal of a running sleep, from which another process continues it after a kill.

`sleep.jsonl` gets a step after each turn of an agent and after each episode that the sleep played. A step is
on the disk before the next request. The journal is removed when the sleep is finished.

The sleep then runs again from its start. Each conversation first gets the recorded answers
(`serving.conversation.Conversation.recorded`), and the tools run again on them
(`speedrunner.methods.method_base.SleepTools.run_agent`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from serving.conversation import Completion
from serving.errors import InvalidCall
from serving.usage import Integer, Number
from speedrunner.store import files, json_records
from speedrunner.store.records import Trajectory, Turn


class RecordedTurn(msgspec.Struct):
    """A complete turn of an agent, and the answer in it, without its problem."""

    turn: Turn
    completion: Completion

    @property
    def answer(self) -> Completion:
        """Return the answer with its problem."""
        problem = None if self.turn.error is None else InvalidCall(self.turn.error, self.turn.text)
        return msgspec.structs.replace(self.completion, problem=problem)


class SleepStep(msgspec.Struct, kw_only=True):
    """A turn of an agent, or an episode.

    Attributes:
        seconds: duration of the sleep so far, in all processes.
        number: of the agent or episode within the sleep, from 0, in the order in which they started.
        recorded, played: the agent's turn or the episode; the other is `None`.
    """

    sleep: Integer
    attempt: Integer
    seconds: Number
    number: Integer
    recorded: RecordedTurn | None = None
    played: Trajectory | None = None


def read_steps(path: Path, sleep: int) -> list[SleepStep]:
    """Return the steps of an unfinished sleep; none if another sleep wrote the journal. Raises
    `StorageError`."""
    return [step for step in json_records.iterate_records(path, SleepStep) if step.sleep == sleep]


class SleepJournal:
    """The journal of one attempt at a sleep.

    Args:
        steps: what another process wrote into it; see `read_steps`.
        prepare: called before each write.
        note: called after each new step.

    Raises `StorageError`: the disk refuses.
    """

    def __init__(
        self,
        path: Path,
        sleep: int,
        attempt: int,
        steps: Sequence[SleepStep] = (),
        prepare: Callable[[], None] = lambda: None,
        note: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._sleep = sleep
        self._attempt = attempt
        self._steps = steps
        self._prepare = prepare
        self._note = note
        self._last_step_s = max((step.seconds for step in steps), default=0.0)
        self.skip_repetition()
        prepare()
        files.write_atomic(path, b"".join(json_records.encode(step) + b"\n" for step in steps))

    @property
    def seconds(self) -> float:
        """Return the duration of the sleep so far, in all processes."""
        return time.monotonic() - self._began

    def skip_repetition(self) -> None:
        """Continue the sleep's duration from its last step: the time since then has only repeated steps."""
        self._began = time.monotonic() - self._last_step_s

    def turns(self, agent: int) -> list[RecordedTurn]:
        """Return the turns of an agent in another process."""
        return [step.recorded for step in self._steps if step.recorded and step.number == agent]

    def episode(self, number: int) -> Trajectory | None:
        """Return the sleep's episode of this number if another process has played it."""
        return next((step.played for step in self._steps if step.played and step.number == number), None)

    def add_turn(self, agent: int, turn: Turn, answer: Completion) -> None:
        """Append a turn; it is on the disk when this returns."""
        self._append(number=agent, recorded=RecordedTurn(turn, msgspec.structs.replace(answer, problem=None)))

    def add_episode(self, number: int, played: Trajectory) -> None:
        """Append an episode; it is on the disk when this returns."""
        self._append(number=number, played=played)

    def _append(self, **step: Any) -> None:
        self._last_step_s = round(self.seconds, 3)
        record = SleepStep(sleep=self._sleep, attempt=self._attempt, seconds=self._last_step_s, **step)
        self._prepare()
        json_records.append_record(self._path, record, durable=True)
        self._note()
