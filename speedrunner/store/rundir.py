"""A run's directory as it is written, by the one process that owns it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from serving.meter import LedgerRow
from speedrunner.store import files
from speedrunner.store.lock import RunLock
from speedrunner.store.records import EpisodeRow, Phase, Policy, Process, SleepRecord, TrainingEnd, Trajectory
from speedrunner.store.seals import Sealer
from speedrunner.store.stored_run import (
    FOLDERS,
    State,
    StoredRun,
    as_run_directory_error,
)

if TYPE_CHECKING:
    from serving.balance import Balance


class RunDirectory(StoredRun):
    """A run that this process owns. Made by `open_for_writing`.

    Each write raises `LockLost` when the lock was lost, `StorageError` when the disk refuses (the file is as
    before), and must not be followed by others then.
    """

    def __init__(self, path: Path, lock: RunLock, sealer: Sealer) -> None:
        super().__init__(path)
        self._lock = lock
        self._sealer = sealer
        self._wrote = False

    @classmethod
    @contextmanager
    def open_for_writing(cls, path: Path) -> Iterator[RunDirectory]:
        """Own a run, new or existing, for as long as the context lasts.

        What a kill left behind is set right first: leftovers are removed, torn tails cut off, and summary
        rows that are missing for finished episodes appended.

        Raises:
            LockHeld: another process owns it.
            RunDirectoryError: it is no run, of another version, or not accessible.
        """
        with as_run_directory_error(path):
            if not path.exists():
                path.mkdir(mode=files.FOLDER_MODE, parents=True, exist_ok=True)
            StoredRun(path).check()  # before anything is written into a folder that is not ours
        with RunLock(path / "lock") as lock:
            with as_run_directory_error(path):
                for name in FOLDERS:
                    files.make_folder(path / name)
                files.remove_leftovers(path)
                for pattern in ("*.jsonl", *(f"{name}/*.jsonl" for name in FOLDERS)):
                    for file in path.glob(pattern):
                        files.repair(file)
                run = cls(path, lock, Sealer(path))
            run._write_missing_rows()
            try:
                yield run
            finally:
                # What stopped the run may be the disk; nothing recorded needs its seal.
                with suppress(files.StorageError):
                    run._seal()

    def write_config(self, text: str) -> None:
        """Write `config.yaml`, which makes the folder a run."""
        self._own()
        files.write_atomic(self._config, text.encode())

    def write_secret(self) -> None:
        """Draw the secret of a new run, unless it has one. See `StoredRun.skill_seed`."""
        self._own()
        state = self.state()
        if not state.secret:
            state.secret = secrets.token_hex(32)
            self._write_state(state)

    def mark_finished(self, step: str) -> None:
        """Note that a step is finished; to be called after all its records are written."""
        self._own()
        state = self.state()
        if step not in state.finished:
            state.finished.append(step)
            self._write_state(state)

    def end_training(self, end: TrainingEnd) -> None:
        """Note that no more rollouts and sleeps are to follow."""
        self._own()
        state = self.state()
        state.training_end = end
        self._write_state(state)

    def write_policy(self, policy: Policy) -> None:
        """Store a new policy version. Raises `InvalidPolicy` too."""
        self._own()
        self.policies.save(policy)

    def append_process(self, process: Process) -> None:
        """Append what a process works with, before it does anything else."""
        self._append(self._processes, process, durable=True)

    def append_trajectory(self, phase: Phase, number: int, trajectory: Trajectory) -> None:
        """Append a finished episode of a batch, or of an evaluation; it is on the disk when this returns."""
        self._own()
        files.sync(self._requests)  # a finished episode never lacks rows of its ledger
        self._append(self._numbered(phase, number), trajectory, durable=True)

    def append_episode(self, row: EpisodeRow) -> None:
        """Append a summary row, after its trajectory (from which it can be derived again)."""
        self._append(self._episodes, row, durable=False)

    def append_request(self, row: LedgerRow) -> None:
        """Append a row of the ledger.

        It survives a kill at once, and a power cut from when its episode or sleep is on the disk.
        """
        self._append(self._requests, row, durable=False)

    def append_accounts(self, balances: Sequence[Balance]) -> None:
        """Append what one process found when it compared the ledger with the engine's counters."""
        for balance in balances:
            self._append(self._accounts, balance, durable=False)
        self._reading.unlink(missing_ok=True)

    def write_reading(self, balances: Sequence[Balance]) -> None:
        """Note what this process finds in passing, in case that it is killed."""
        self._own()
        files.write_atomic(self._reading, msgspec.json.encode(balances))

    def keep_reading(self) -> None:
        """Append what a process that was killed has found last."""
        if readings := self._readings():
            self.append_accounts(readings)

    def write_sleep(self, record: SleepRecord) -> None:
        """Write the record of a sleep (again, if a killed attempt came as far as this)."""
        self._own()
        files.sync(self._requests)
        files.write_atomic(self._numbered("sleep", record.sleep), record)

    def _own(self) -> None:
        self._lock.check()
        self._wrote = True

    def _append(self, path: Path, record: msgspec.Struct, *, durable: bool) -> None:
        self._own()
        self._sealer.grew(path, files.append_record(path, record, durable=durable))

    def _write_missing_rows(self) -> None:
        """Append the summary rows that finished episodes lack after a kill."""
        for row in self._missing(self.rows()):
            self.append_episode(row)

    def _seal(self) -> None:
        """Seal what this process has recorded, if it has."""
        if self._wrote and self._config.exists():
            self._own()
            self._write_state(self.state())

    def _write_state(self, state: State) -> None:
        state.seals = self._sealer.seals(state.seals)
        state.digest = state.own_digest
        files.write_atomic(self._state, state)
