"""The layout of a run's directory, and `state.json`.

`speedrunner.store.run_data` reads a run, `speedrunner.store.rundir` writes one.

config.yaml                    resolved configuration
processes.jsonl                models, prompts, prices, code: one row per process that worked on the run
policies/v0000/                one folder per policy version
trajectories/batch_0000.jsonl  training episodes, one line each, batches counted from 0
evaluations/0050.jsonl         held-out episodes after that many training rollouts
sleeps/0001.json               one file per sleep
carried/0000/                  training history of the run that it started from, see speedrunner.store.history
sleep.jsonl                    journal of the running sleep, see speedrunner.store.sleep_journal
episodes.jsonl                 one summary row per episode
requests.jsonl                 the ledger
tools.jsonl                    the tools that each role was offered, one row per policy and list
reconciliation.jsonl           the ledger's sums and the engine's counters, one row per process
state.json                     finished steps, sizes of the files that grow, and the run's secret
server.log, workers.log        for people
lock/                          names the process that owns the run
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from envs import Task
from speedrunner.store import files, json_records
from speedrunner.store.policies import PolicyStore
from speedrunner.store.records import FORMAT, Phase

PLAN = "analysis.yaml"
"""Written by sweeps next to their runs, see `speedrunner.results.analysis_plan`."""
FOLDERS = ("policies", "trajectories", "evaluations", "sleeps")
_NUMBERED = {
    "train": "trajectories/batch_*.jsonl",
    "test": "evaluations/*.jsonl",
    "sleep": "sleeps/*.json",
}
"""Files of each phase; the star is a number of four digits or more."""
_BEFORE_CONFIG = {
    *("lock", "state.json", "server.log", "workers.log"),
    *("requests.jsonl", "reconciliation.jsonl"),
}
"""Names in the folder of a run that has no configuration yet, or whose start was refused."""

_NUMBER = "[0-9]{4,}"
_EARLIER = f"carried/{_NUMBER}"
_GROWING_FILE = re.compile(
    rf"(trajectories/batch_|evaluations/){_NUMBER}\.jsonl"
    r"|(processes|episodes|requests|tools|reconciliation)\.jsonl"
)
_FILE = re.compile(
    rf"({_EARLIER}/)?(config\.yaml|trajectories/batch_{_NUMBER}\.jsonl|sleeps/{_NUMBER}\.json"
    rf"|policies/v{_NUMBER}/(skills\.py|library\.json|notes\.md|method\.json))"
    rf"|{_GROWING_FILE.pattern}|sleep\.jsonl|state\.json|(server|workers)\.log|lock/[^/]+\.json"
)
_FOLDER = re.compile(
    rf"({_EARLIER}/)?(trajectories|sleeps|policies(/v{_NUMBER})?)|carried|{_EARLIER}|evaluations|lock"
)


class RunDirectoryError(files.StorageError):
    """A folder is not a run that can be read or resumed."""


def list_files(run: Path, folder: str = "") -> Iterator[str]:
    """Yield the paths of a run's files within its directory, without leftovers of killed processes.

    Whoever opens a run that this process did not create comes through here first, since someone else may have
    made it: no link leads out of it, and no pipe or device is opened. A user's own files and folders at its
    top are left out, and never opened.

    Raises:
        RunDirectoryError: an entry is neither a folder nor a regular file; one of the run's folders has an
            entry with a name that SpeedRunner does not write; or it has no configuration, and such an entry.
        OSError: the directory cannot be read.
    """
    for entry in sorted(os.scandir(run / folder), key=lambda entry: entry.name):
        name, known = folder + entry.name, None
        if entry.is_dir(follow_symlinks=False):
            known = _FOLDER
        elif entry.is_file(follow_symlinks=False):
            known = _FILE
        # NFS gives such names to files that were removed while they were open. A user's own files next to
        # the records, such as a report, are not opened either.
        is_own = "/" in name or _FILE.fullmatch(name) or _FOLDER.fullmatch(name)
        is_beside = not is_own and os.path.lexists(run / "config.yaml")
        is_skipped = files.is_leftover(entry) or entry.name.startswith(".nfs") or is_beside
        if known is None or not (is_skipped or known.fullmatch(name)):
            if not os.path.lexists(entry):  # removed meanwhile, such as a lock
                continue
            if not os.path.lexists(run / "config.yaml"):
                raise _refuse_folder(run, name)
            raise RunDirectoryError(
                f"{run} has {name!r}, no file or folder that SpeedRunner writes there: move it out of the run"
            )
        if known is _FILE and not is_skipped:
            yield name
        elif not is_skipped:
            with suppress(FileNotFoundError):
                yield from list_files(run, f"{name}/")


def _refuse_folder(folder: Path, name: str) -> RunDirectoryError:
    top = name.partition("/")[0]
    return RunDirectoryError(
        f"{folder} contains no run (it has {top}, but no config.yaml): choose another directory"
    )


class State(msgspec.Struct):
    """The content of `state.json`.

    Attributes:
        finished: keys of the finished steps, in the order in which they finished.
        secret: random text, unique to this run; see `skill_seed`.
        sizes: bytes of each appended file when the last step finished, by path in the directory.
    """

    finished: list[str] = []
    secret: str = ""
    sizes: dict[str, int] = {}
    format: int = FORMAT

    def skill_seed(self, task: Task) -> str:
        """Return the seed of the skills' random numbers in all episodes of a task.

        Replays and resumed runs draw the same numbers. A skill can read its seed, so the seed is a keyed
        hash. The secret is not readable for isolated processes, so none can find the task from a seed.
        """
        message = f"{task.name} {task.index}"
        return hmac.new(self.secret.encode(), message.encode(), "sha256").hexdigest()


def sleep_key(sleep: int) -> str:
    """Return the key of a sleep, used as the label `episode` of its ledger rows."""
    return f"sleep/{sleep:04d}"


class RunFiles:
    """The files of one run, by path.

    Attributes:
        path: the run's directory.
        policies: the policy versions.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policies = PolicyStore(path / "policies")
        self.worker_log = path / "workers.log"
        self.config = path / "config.yaml"
        self.processes = path / "processes.jsonl"
        self.state = path / "state.json"
        self.sleep_journal = path / "sleep.jsonl"
        self.episodes = path / "episodes.jsonl"
        self.requests = path / "requests.jsonl"
        self.tools = path / "tools.jsonl"
        self.reconciliations = path / "reconciliation.jsonl"

    def numbered(self, phase: Phase | Literal["sleep"], number: int) -> Path:
        """Return the file of a batch, an evaluation (by its checkpoint) or a sleep."""
        return self.path / _NUMBERED[phase].replace("*", f"{number:04d}")

    def numbers(self, phase: Phase | Literal["sleep"]) -> list[int]:
        """Return the batches, checkpoints or sleeps that have a file, ascending."""
        any_file = self.path / _NUMBERED[phase]
        folder = any_file.parent
        if not folder.is_dir():
            return []
        pattern = re.escape(any_file.name).replace(r"\*", r"(\d{4,})")
        with files.explain_errors(folder, "read"):
            matches = (re.fullmatch(pattern, path.name) for path in folder.iterdir())
            return sorted(int(match[1]) for match in matches if match)

    def appended(self) -> list[Path]:
        """Return the files of records that only grow."""
        patterns = ("*.jsonl", "trajectories/*.jsonl", "evaluations/*.jsonl")
        paths = (path for pattern in patterns for path in self.path.glob(pattern))
        return sorted(path for path in paths if path != self.sleep_journal)

    def check(self) -> None:
        """Raise `StorageError` unless the folder is a run of this version's layout, or may become one.

        A run has all records that it had when a step finished.
        """
        if not self.path.is_dir():
            raise RunDirectoryError(f"{self.path} is a file: a run needs a directory")
        for name in list_files(self.path):
            # Records without a configuration belong to someone else, and would count as episodes of the new
            # run.
            if name.partition("/")[0] not in _BEFORE_CONFIG and not self.config.exists():
                raise _refuse_folder(self.path, name)
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Raise `RunDirectoryError` if a file has lost records that were there when a step finished."""
        again = "copy the whole run again"
        state = self.read_state()
        if not state.secret and (self.numbers("train") or self.numbers("test")):
            raise RunDirectoryError(f"{self.path} has episodes, but no complete {self.state.name}: {again}")
        for name, size in state.sizes.items():
            if not _GROWING_FILE.fullmatch(name):
                raise RunDirectoryError(f"{self.state} names {name[:80]!r}, which no run has: {again}")
            path = self.path / name
            try:  # open it: a network file system then shows its newest size
                with path.open("rb") as file:
                    bytes_left = os.fstat(file.fileno()).st_size
                    has = f"has {bytes_left:,} bytes"
                    if bytes_left >= size > json_records.find_end(file, bytes_left):
                        bytes_left, has = 0, "has a last line that is not JSON"
            except FileNotFoundError:
                bytes_left, has = 0, "is missing"
            except OSError:
                continue  # readers say what it is
            if bytes_left < size:
                raise RunDirectoryError(
                    f"{path} {has}, and {self.state.name} recorded {size:,} bytes: records are missing or"
                    f" damaged; {again}"
                )

    def read_state(self) -> State:
        """Return the finished steps and the secret; an empty state if there is no file yet."""
        try:
            return json_records.read_record(self.state, State)
        except files.StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return State()
            raise
