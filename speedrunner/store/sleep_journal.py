"""The journal of a running sleep, from which another process continues it after a kill.

`sleep.jsonl` gets a step after each turn of an agent and after each episode that the sleep played. A step is
on the disk before the next request. The journal is removed when the sleep is finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from serving.conversation import Completion
from serving.meter import LedgerRow
from serving.usage import Integer, Number
from speedrunner.store import files, json_lines, json_records
from speedrunner.store.labels import attempt_of
from speedrunner.store.records import SleepRecord, Trajectory, Turn
from speedrunner.store.stored_run import sleep_key


class SleepStep(msgspec.Struct, kw_only=True):
    """A turn of an agent, or an episode.

    Attributes:
        seconds: duration of the sleep so far, in all processes.
        number: of the agent or episode within the sleep, from 0, in the order in which they started.
        turn: the agent's complete turn; `None`: the step is an episode.
        completion: the answer of that turn, without its problem.
        overflowed: whether the answer did not fit the context.
        played: the episode.
    """

    sleep: Integer
    attempt: Integer
    seconds: Number
    number: Integer
    turn: Turn | None = None
    completion: Completion | None = None
    overflowed: bool = False
    played: Trajectory | None = None


def read_steps(path: Path, sleep: int) -> list[SleepStep]:
    """Return the steps of an unfinished sleep; none if another sleep wrote the journal. Raises
    `StorageError`."""
    return [step for step in json_lines.iterate_records(path, SleepStep) if step.sleep == sleep]


def find_lost_requests(ledger: Iterable[LedgerRow], record: SleepRecord) -> list[str]:
    """Return the ids of a sleep's requests whose answers are not in its record: a kill lost them."""
    used = {turn.request for turn in record.turns}
    own = (sleep_key(record.sleep), str(record.attempt))
    rows = (row for row in ledger if attempt_of(row.labels) == own and not row.wasted)
    return [row.request for row in rows if row.request not in used]


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
        self.attempt = attempt
        self._path = path
        self._sleep = sleep
        self._steps = steps
        self._prepare = prepare
        self._note = note
        self._began = time.monotonic() - max((step.seconds for step in steps), default=0.0)
        prepare()
        files.write_atomic(path, b"".join(json_records.encode(step) + b"\n" for step in steps))

    @property
    def seconds(self) -> float:
        """Return the duration of the sleep so far, in all processes."""
        return time.monotonic() - self._began

    def agent_steps(self, agent: int) -> list[SleepStep]:
        """Return the steps of an agent that another process wrote."""
        return [step for step in self._steps if step.turn is not None and step.number == agent]

    def episode(self, number: int) -> Trajectory | None:
        """Return the sleep's episode of this number if another process has played it."""
        return next((step.played for step in self._steps if step.played and step.number == number), None)

    def add_turn(self, agent: int, turn: Turn, completion: Completion, overflowed: bool) -> None:
        """Append a turn; it is on the disk when this returns."""
        plain = msgspec.structs.replace(completion, problem=None)
        self._append(number=agent, turn=turn, completion=plain, overflowed=overflowed)

    def add_episode(self, number: int, played: Trajectory) -> None:
        """Append an episode; it is on the disk when this returns."""
        self._append(number=number, played=played)

    def _append(self, **step: Any) -> None:
        seconds = round(self.seconds, 3)
        record = SleepStep(sleep=self._sleep, attempt=self.attempt, seconds=seconds, **step)
        self._prepare()
        json_lines.append_record(self._path, record, durable=True)
        self._note()
