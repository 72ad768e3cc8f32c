"""Write a run's directory, in the one process that owns it."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from serving.meter import LedgerRow, Reconciliation
from serving.tokens.tools import ToolSpec
from speedrunner.store import files, json_records
from speedrunner.store.history import CARRIED, copy_history
from speedrunner.store.process_notes import ACCEPTABLE
from speedrunner.store.records import (
    EpisodeRow,
    Labels,
    OfferedTools,
    Phase,
    Policy,
    Process,
    SleepRecord,
    Trajectory,
)
from speedrunner.store.run_data import RunData
from speedrunner.store.run_lock import RunLock
from speedrunner.store.sleep_journal import SleepJournal, SleepStep
from speedrunner.store.stored_run import FOLDERS, RunFiles


class RunDirectory:
    """A run that this process owns. `open_for_writing` creates it.

    Each write raises `LockLost` if the lock was lost, and `StorageError` if the disk refuses (the file is
    unchanged). Do not write after such an error.

    Attributes:
        files: its files.
        policies: the policy versions.
        state: the content of `state.json`.
        history_copies: folder of `History.files`, removed when the run is closed.
    """

    def __init__(self, run_files: RunFiles, lock: RunLock) -> None:
        self.files = run_files
        self.path = run_files.path
        self.policies = run_files.policies
        self.state = run_files.read_state()
        self.history_copies = files.temporary_name(self.path / "history")
        self._lock = lock
        self._appending = threading.Lock()  # evaluations append in a thread while another step ends
        self._offered: set[bytes] | None = None

    def read(self) -> RunData:
        """Return a reader of the run as it is now."""
        return RunData(self.path)

    @classmethod
    @contextmanager
    def open_for_writing(cls, path: Path) -> Iterator[RunDirectory]:
        """Own a run, new or existing, while the context lasts.

        First repair what a kill left behind: remove leftovers, cut off torn tails, and append the missing
        summary rows of finished episodes. A killed process may have written records and names that are not on
        the disk yet. They are synced first, since all new records rely on them. A new run gets its secret.

        Raises:
            LockHeld: another process owns it.
            StorageError: the folder is not a run, has another version, or is not accessible.
        """
        with files.explain_errors(path, "opened"):
            if not path.exists():
                path.mkdir(mode=files.FOLDER_MODE, parents=True, exist_ok=True)
            RunFiles(path).check()  # before anything is written into a folder of someone else
        with RunLock(path / "lock") as lock:
            with files.explain_errors(path, "opened"):
                for name in FOLDERS:
                    files.make_folder(path / name)
                files.remove_leftovers(path)
                for pattern in ("*.jsonl", *(f"{name}/*.jsonl" for name in FOLDERS)):
                    for file in path.glob(pattern):
                        json_records.repair(file)
                        files.sync(file)
                for folder in (path, *(path / name for name in FOLDERS)):
                    files.sync_folder(folder)
                run = cls(RunFiles(path), lock)
            if not run.state.secret:
                run._write_state(secret=secrets.token_hex(32))
            for row in run.read().missing_rows:
                run.append_episode(row)
            try:
                yield run
            finally:
                shutil.rmtree(run.history_copies, ignore_errors=True)

    def write_config(self, text: str) -> None:
        """Write or replace `config.yaml`, which makes the folder a run."""
        self._lock.check()
        files.write_atomic(self.files.config, text.encode())

    def withdraw(self) -> None:
        """Make the folder no run again, as nothing was played. Logs and the ledger stay."""
        self._lock.check()
        for name in (CARRIED, self.policies.folder.name):
            shutil.rmtree(self.path / name, ignore_errors=True)
        self.files.config.unlink()

    def mark_finished(self, step: str) -> None:
        """Mark a step as finished, with the sizes of all files. Call this after all its records are
        written."""
        if step not in self.state.finished:
            with self._appending:
                appended = {path: path.stat().st_size for path in self.files.appended()}
            sizes = {str(path.relative_to(self.path)): size for path, size in appended.items()}
            for name, size in sizes.items():
                if size != self.state.sizes.get(name):
                    files.sync(self.path / name)  # a power cut must not leave a size of lost records
            self._write_state(finished=[*self.state.finished, step], sizes=sizes)

    def write_policy(self, policy: Policy) -> None:
        """Store a new policy version. Raises `InvalidPolicy` too."""
        self._lock.check()
        self.policies.save(policy)

    def carry_history(self, source: RunData, version: int) -> None:
        """Copy the training history that led to another run's policy. See `speedrunner.store.history`.

        This replaces a copy by a process that was killed before it stored the policy: the other run may have
        continued since then.
        """
        self._lock.check()
        shutil.rmtree(self.path / CARRIED, ignore_errors=True)
        copy_history(source, version, self.path / CARRIED)

    def append_process(self, process: Process) -> None:
        """Append the record of this process, before it does anything else. After a change of code, versions
        or server options, an interrupted sleep starts over."""
        self._append(self.files.processes, process, durable=True)
        if any(change.startswith(ACCEPTABLE) for change in process.changes):
            self.remove_sleep_journal()

    def append_trajectory(self, phase: Phase, number: int, trajectory: Trajectory) -> None:
        """Append a finished episode of a batch or an evaluation; it is on the disk when this returns."""
        self._lock.check()
        files.sync(self.files.requests)  # the ledger rows of a finished episode must not be missing
        self._append(self.files.numbered(phase, number), trajectory, durable=True)

    def append_episode(self, row: EpisodeRow) -> None:
        """Append a summary row after its trajectory, from which it can be derived again."""
        self._append(self.files.episodes, row, durable=False)

    def append_request(self, row: LedgerRow) -> None:
        """Append a row of the ledger.

        It survives a kill at once, and a power cut as soon as its episode or sleep is on the disk.
        """
        self._append(self.files.requests, row, durable=False)

    def append_tools(self, labels: Mapping[str, str], tools: list[ToolSpec]) -> None:
        """Append the tools of a conversation with these labels, unless they are recorded already."""
        known = Labels.of(labels)
        row = OfferedTools(role=known.role or "", policy=known.policy, tools=tools)
        if self._offered is None:
            self._offered = {msgspec.json.encode(row) for row in self.read().tools}
        if (line := msgspec.json.encode(row)) not in self._offered:
            self._append(self.files.tools, row, durable=False)
            self._offered.add(line)

    def append_reconciliation(self, reconciliation: Reconciliation) -> None:
        """Append a process's comparison of the ledger with the engine's counters. Ignore a disk error,
        because the error that stopped the run is reported first."""
        with suppress(files.StorageError):
            self._append(self.files.reconciliations, reconciliation, durable=False)

    def sleep_journal(
        self, sleep: int, attempt: int, steps: Sequence[SleepStep], note: Callable[[], None]
    ) -> SleepJournal:
        """Start the journal of an attempt at a sleep, or continue it after these steps. `note` is called
        after each new step."""

        def prepare() -> None:
            self._lock.check()
            files.sync(self.files.requests)  # the ledger rows of a step must not be missing

        return SleepJournal(self.files.sleep_journal, sleep, attempt, steps, prepare, note)

    def remove_sleep_journal(self) -> None:
        """Remove the journal of a sleep that is finished or has to start over."""
        self._lock.check()
        with files.explain_errors(self.files.sleep_journal, "removed"):
            self.files.sleep_journal.unlink(missing_ok=True)

    def write_sleep(self, record: SleepRecord) -> None:
        """Write the record of a sleep, replacing that of a killed attempt."""
        self._lock.check()
        files.sync(self.files.requests)
        json_records.write_record(self.files.numbered("sleep", record.sleep), record)

    def _append(self, path: Path, record: msgspec.Struct, *, durable: bool) -> None:
        self._lock.check()
        with self._appending:
            json_records.append_record(path, record, durable=durable)

    def _write_state(self, **changes: Any) -> None:
        self._lock.check()
        state = msgspec.structs.replace(self.state, **changes)
        json_records.write_record(self.files.state, state)
        self.state = state
