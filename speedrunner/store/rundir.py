"""Write a run's directory, in the one process that owns it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from serving.meter import LedgerRow
from speedrunner.store import files
from speedrunner.store.checksums import ChecksumKeeper
from speedrunner.store.data import RunData
from speedrunner.store.lock import RunLock
from speedrunner.store.records import EpisodeRow, Phase, Policy, Process, SleepRecord, TrainingEnd, Trajectory
from speedrunner.store.stored_run import FOLDERS, RunFiles, as_run_directory_error

if TYPE_CHECKING:
    from serving.reconciliation import Reconciliation


class RunDirectory:
    """A run that this process owns. Made by `open_for_writing`.

    Each write raises `LockLost` when the lock was lost, `StorageError` when the disk refuses (the file is as
    before), and must not be followed by others then.

    Attributes:
        files: its files.
        policies: the policy versions.
        state: the content of `state.json`.
    """

    def __init__(self, run_files: RunFiles, lock: RunLock, checksum_keeper: ChecksumKeeper) -> None:
        self.files = run_files
        self.path = run_files.path
        self.policies = run_files.policies
        self.state = run_files.read_state()
        self._lock = lock
        self._checksums = checksum_keeper
        self._wrote = False

    def read(self) -> RunData:
        """Return a reader of the run as it is now."""
        return RunData(self.path)

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
            RunFiles(path).check()  # before anything is written into a folder that is not ours
        with RunLock(path / "lock") as lock:
            with as_run_directory_error(path):
                for name in FOLDERS:
                    files.make_folder(path / name)
                files.remove_leftovers(path)
                for pattern in ("*.jsonl", *(f"{name}/*.jsonl" for name in FOLDERS)):
                    for file in path.glob(pattern):
                        files.repair(file)
                run = cls(RunFiles(path), lock, ChecksumKeeper(path))
            for row in run.read().missing_rows:
                run.append_episode(row)
            try:
                yield run
            finally:
                # What stopped the run may be the disk; nothing recorded needs its checksum.
                with suppress(files.StorageError):
                    run._seal()

    def write_config(self, text: str) -> None:
        """Write `config.yaml`, which makes the folder a run."""
        self._own()
        files.write_atomic(self.files.config, text.encode())

    def write_secret(self) -> None:
        """Draw the secret of a new run, unless it has one. See `State.skill_seed`."""
        if not self.state.secret:
            self._write_state(secret=secrets.token_hex(32))

    def mark_finished(self, step: str) -> None:
        """Note that a step is finished; to be called after all its records are written."""
        if step not in self.state.finished:
            self._write_state(finished=[*self.state.finished, step])

    def end_training(self, end: TrainingEnd) -> None:
        """Note that no more rollouts and sleeps are to follow."""
        self._write_state(training_end=end)

    def write_policy(self, policy: Policy) -> None:
        """Store a new policy version. Raises `InvalidPolicy` too."""
        self._own()
        self.policies.save(policy)

    def append_process(self, process: Process) -> None:
        """Append what a process works with, before it does anything else."""
        self._append(self.files.processes, process, durable=True)

    def append_trajectory(self, phase: Phase, number: int, trajectory: Trajectory) -> None:
        """Append a finished episode of a batch, or of an evaluation; it is on the disk when this returns."""
        self._own()
        files.sync(self.files.requests)  # a finished episode never lacks rows of its ledger
        self._append(self.files.numbered(phase, number), trajectory, durable=True)

    def append_episode(self, row: EpisodeRow) -> None:
        """Append a summary row, after its trajectory (from which it can be derived again)."""
        self._append(self.files.episodes, row, durable=False)

    def append_request(self, row: LedgerRow) -> None:
        """Append a row of the ledger.

        It survives a kill at once, and a power cut from when its episode or sleep is on the disk.
        """
        self._append(self.files.requests, row, durable=False)

    def append_reconciliations(self, reconciliations: Sequence[Reconciliation]) -> None:
        """Append what one process found when it compared the ledger with the engine's counters."""
        for reconciliation in reconciliations:
            self._append(self.files.reconciliations, reconciliation, durable=False)
        self.files.reading.unlink(missing_ok=True)

    def write_reading(self, reconciliations: Sequence[Reconciliation]) -> None:
        """Note what this process finds in passing, in case that it is killed."""
        self._own()
        files.write_atomic(self.files.reading, msgspec.json.encode(reconciliations))

    def keep_reading(self) -> None:
        """Append what a process that was killed has found last."""
        if readings := self.read().reading:
            self.append_reconciliations(readings)

    def write_sleep(self, record: SleepRecord) -> None:
        """Write the record of a sleep, again if an attempt was killed after this."""
        self._own()
        files.sync(self.files.requests)
        files.write_atomic(self.files.numbered("sleep", record.sleep), record)

    def _own(self) -> None:
        self._lock.check()
        self._wrote = True

    def _append(self, path: Path, record: msgspec.Struct, *, durable: bool) -> None:
        self._own()
        self._checksums.grew(path, files.append_record(path, record, durable=durable))

    def _seal(self) -> None:
        """Seal what this process has recorded, if it has."""
        if self._wrote and self.files.config.exists():
            self._write_state()

    def _write_state(self, **changes: Any) -> None:
        self._own()
        state = msgspec.structs.replace(
            self.state, **changes, checksums=self._checksums.checksums(self.state.checksums)
        )
        state.digest = state.own_digest
        files.write_atomic(self.files.state, state)
        self.state = state
