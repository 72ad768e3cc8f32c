"""A run's directory as it is read: where everything lies, and typed records of it.

config.yaml                    resolved configuration
processes.jsonl                who worked on it, with what models, prompts, prices, code: one row per process
policies/v0000/                one folder per policy version
trajectories/batch_0000.jsonl  training episodes, one line each, batches counted from 0
evaluations/0050.jsonl         held-out episodes after that many training rollouts
sleeps/0001.json               one file per sleep
episodes.jsonl                 one summary row per episode
requests.jsonl                 the ledger
accounts.jsonl                 the ledger's sums beside the engine's counters, one row per process
reading.json                   the same of the process that works on it, seconds ago
state.json                     what is finished, the run's secret, and seals of all that is recorded
server.log, hosts.log          for people
inducer_server.log             for people, too: of an inducer with a server of its own
lock/                          names the process that owns the run
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, get_args

import msgspec

from envs import Task
from serving.meter import LedgerRow
from speedrunner.config.plain_yaml import BYTES as CONFIG_BYTES
from speedrunner.store import files
from speedrunner.store.policies import PolicyStore
from speedrunner.store.records import (
    FORMAT,
    EpisodeRow,
    Phase,
    Process,
    SleepRecord,
    TrainingEnd,
    Trajectory,
)
from speedrunner.store.seals import Seal

if TYPE_CHECKING:
    from serving.balance import Balance

FOLDERS = ("policies", "trajectories", "evaluations", "sleeps")
_NUMBERED = {
    "train": "trajectories/batch_*.jsonl",
    "test": "evaluations/*.jsonl",
    "sleep": "sleeps/*.json",
}
"""Files of each phase; a number of four digits or more stands for the star."""
_BEFORE_CONFIG = {"lock", "server.log", "inducer_server.log", "hosts.log", *FOLDERS}
"""What may stand in a folder whose run was killed before it could write its configuration."""


STATE_BYTES = 8 * 2**20
"""Bytes of `state.json` that are read: the seals of some 50,000 files."""


LEDGER_BYTES = 256 * 2**20
"""Bytes of memory that a ledger's rows may take: some 480,000 rows of 5,000 episodes."""

ROW_BYTES, LABELS_BYTES = 500, 2_000
"""Bytes of memory for a row, and for what commands note of each set of labels (one for each attempt at an
episode, role and replica). Measured with `speedrunner cost`: 480 and 1,600."""

SLEEPS_BYTES = 512 * 2**20
"""Bytes of memory that the records of all sleeps may take; see `files.decoded_bytes`."""

EPISODES = 50_000
"""Episodes of a run, with every attempt: rows of `episodes.jsonl` and those that it lacks."""

CHECKPOINTS = 500
"""Evaluations of a run. A report draws each of them, and resamples its episodes."""

MODELS = 100
"""Models in a ledger. The engine's time is split for each of them."""

PROCESSES = 1_000
"""Rows of `processes.jsonl`."""

KEY_CHARS = 1_000
"""Characters of an episode's key."""


class RunDirectoryError(files.StorageError):
    """A folder is not a run that can be read or gone on with."""


class State(msgspec.Struct):
    """What `state.json` holds.

    Attributes:
        finished: keys of the finished steps, in the order in which they were finished.
        training_end: where training ended before its plan did, if it has.
        secret: random text of this run alone; see `StoredRun.skill_seed`.
        seals: by place in the directory; see `speedrunner.store.seals`.
        digest: SHA-256 of the rest.
    """

    finished: list[str] = []
    training_end: TrainingEnd | None = None
    secret: str = ""
    seals: dict[str, Seal] = {}
    digest: str = ""
    format: int = FORMAT

    @property
    def own_digest(self) -> str:
        """What `digest` should be."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, digest=""))).hexdigest()


def sleep_key(sleep: int) -> str:
    """The key of a sleep, as episodes have theirs: the label `episode` of its ledger rows."""
    return f"sleep/{sleep:04d}"


class StoredRun:
    """What a run has recorded, read anew at each call, from any process, also while the run goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policies = PolicyStore(path / "policies")
        self.server_log = path / "server.log"
        self.inducer_server_log = path / "inducer_server.log"
        self.host_log = path / "hosts.log"
        self._config = path / "config.yaml"
        self._processes = path / "processes.jsonl"
        self._state = path / "state.json"
        self._episodes = path / "episodes.jsonl"
        self._requests = path / "requests.jsonl"
        self._accounts = path / "accounts.jsonl"
        self._reading = path / "reading.json"

    @staticmethod
    def open_for_reading(path: Path) -> StoredRun:
        """Open an existing run; this takes no lock. Raises `RunDirectoryError`."""
        with as_run_directory_error(path):
            if not path.exists():
                raise RunDirectoryError(f"{path} does not exist: name a run's directory")
            run = StoredRun(path)
            run.check()
            if run.config() is None:
                raise RunDirectoryError(f"{path} holds no run: it has no config.yaml")
        return run

    def check(self) -> None:
        """Whether the folder is a run of this version's layout, or may become one."""
        if not self.path.is_dir():
            raise RunDirectoryError(f"{self.path} is a file: a run needs a directory of its own")
        for name in FOLDERS:
            if (self.path / name).is_symlink():
                advice = "links are not followed: put what it names in its place"
                raise RunDirectoryError(f"{self.path / name} is a link, and {advice}")
        foreign = sorted(
            entry.name
            for entry in self.path.iterdir()
            if not files.is_leftover(entry)
            # Records without a configuration are someone else's, and would count as episodes of the new run.
            and (entry.name not in _BEFORE_CONFIG or (entry.name in FOLDERS and any(entry.iterdir())))
        )
        if foreign and not self._config.exists():
            raise RunDirectoryError(
                f"{self.path} holds no run (it has {foreign[0]}, but no config.yaml): name another directory"
            )
        self.state()

    def state(self) -> State:
        """What is finished, and sealed."""
        try:
            return files.read_record(self._state, State, STATE_BYTES)
        except files.StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return State()
            raise

    def config(self) -> str | None:
        """Text of `config.yaml`; `None` when there is none yet."""
        if not self._config.exists():
            return None
        return files.read_content(self._config, CONFIG_BYTES).decode(errors="replace")

    def finished(self) -> list[str]:
        """Keys of the finished steps, in the order in which they were finished."""
        return self.state().finished

    @property
    def training_end(self) -> TrainingEnd | None:
        """Where training ended before its plan did, if it has."""
        return self.state().training_end

    def skill_seed(self, task: Task) -> str:
        """Return the seed of the skills' random numbers in all episodes of a task.

        Replays and resumed runs draw the same numbers. A skill can read its seed, so the seed is a keyed
        hash: without the secret, which no isolated process can read, no one can find the task of a seed.
        """
        message = f"{task.name} {task.index}"
        return hmac.new(self.state().secret.encode(), message.encode(), "sha256").hexdigest()

    def numbers(self, phase: Phase | Literal["sleep"]) -> list[int]:
        """Batches, checkpoints of evaluations or sleeps of which there are records, ascending."""
        any_file = self.path / _NUMBERED[phase]
        folder = any_file.parent
        if not folder.is_dir():
            return []
        pattern = re.escape(any_file.name).replace(r"\*", r"(\d{4,})")
        with files.explained(folder, "read"):
            matches = (re.fullmatch(pattern, path.name) for path in folder.iterdir())
            return sorted(int(match[1]) for match in matches if match)

    def trajectories(self, phase: Phase, number: int) -> list[Trajectory]:
        """Finished episodes of one batch or evaluation, in the order in which they ended.

        Of one that was played again, after a fault of ours, the newest attempt.
        """
        return list(self.each_trajectory(phase, number))

    def each_trajectory(self, phase: Phase, number: int) -> Iterator[Trajectory]:
        """The same, one at a time in memory."""
        path = self._numbered(phase, number)
        newest = {_key(line): place for place, line in enumerate(files.whole_lines(path), start=1)}
        with as_run_directory_error(self.path):
            yield from files.each_record(
                path, Trajectory, lambda place, line: newest.get(_key(line)) == place
            )

    def played(self, phase: Phase, number: int) -> Iterator[Trajectory]:
        """The same, one at a time in memory, with every attempt that ended."""
        with as_run_directory_error(self.path):
            yield from files.each_record(self._numbered(phase, number), Trajectory)

    def sleeps(self) -> list[SleepRecord]:
        """Sleeps whose record is written, ascending."""
        room, found = SLEEPS_BYTES, []
        with as_run_directory_error(self.path):
            for number in self.numbers("sleep"):
                path = self._numbered("sleep", number)
                content = files.read_content(path)
                room -= files.decoded_bytes(content, room)
                if room < 0:
                    raise RunDirectoryError(
                        f"{path}: the records of sleeps up to this one would take more than {SLEEPS_BYTES}"
                        " bytes of memory, the limit"
                    )
                found.append(files.as_record(content, SleepRecord, path))
        return found

    def episodes(self) -> list[EpisodeRow]:
        """One summary row per finished episode, also where a kill came before the row was written."""
        rows = self.rows()
        return _newest(self._bounded(rows + self._missing(rows)))

    def rows(self) -> list[EpisodeRow]:
        """The summary rows as they stand there, with those of every attempt that ended."""
        return self._bounded(self._read(self._episodes, EpisodeRow))

    def count(self, phase: Phase) -> int:
        """How many episodes of a phase are finished; their texts are not decoded."""
        keys = (self._keys(self._numbered(phase, number)) for number in self.numbers(phase))
        return sum(len(_newest(each)) for each in keys)

    def requests(self) -> list[LedgerRow]:
        """Rows of the ledger; those of an episode share their labels."""
        room, found = LEDGER_BYTES, list[LedgerRow]()
        shared: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        with as_run_directory_error(self.path):
            for row in files.each_record(self._requests, LedgerRow):
                key = tuple(row.labels.items())
                room -= ROW_BYTES + len(row.request) + len(row.model) + len(row.error or "")
                if key not in shared:
                    room -= LABELS_BYTES + sum(len(name) + len(value) + 160 for name, value in key)
                if room < 0:
                    raise RunDirectoryError(
                        f"{self._requests}, line {len(found) + 1}: the rows up to this one would take more"
                        f" than {LEDGER_BYTES} bytes of memory, the limit"
                    )
                msgspec.structs.force_setattr(row, "labels", shared.setdefault(key, row.labels))
                found.append(row)
        if len({row.model for row in found}) > MODELS:
            raise RunDirectoryError(f"{self._requests} names more than {MODELS} models, the limit")
        return found

    def processes(self) -> list[Process]:
        """Those that worked on it, in their order."""
        found = self._read(self._processes, Process)
        if len(found) > PROCESSES:
            raise RunDirectoryError(f"{self._processes} has more than {PROCESSES} rows, the limit")
        return found

    def accounts(self) -> list[Balance]:
        """What each process found at its end, or in passing where that was the last."""
        from serving.balance import Balance  # here, as an HTTP client comes with it

        return self._read(self._accounts, Balance) + self._readings()

    def find(self, phase: Phase, number: int, episode: str) -> Trajectory | None:
        """The newest attempt of one episode of a batch or evaluation; no other one is decoded."""
        path = self._numbered(phase, number)
        with as_run_directory_error(self.path):
            attempts = [*files.each_record(path, Trajectory, lambda _, line: _key(line) == episode)]
        return attempts[-1] if attempts else None

    def lines(self, phase: Phase) -> Iterator[tuple[str, bytes]]:
        """Every finished episode of a phase: its key, and its line as it stands there."""
        for number in self.numbers(phase):
            for line in files.whole_lines(self._numbered(phase, number)):
                yield _key(line), line

    def _readings(self) -> list[Balance]:
        from serving.balance import Balance

        if not self._reading.exists():
            return []
        with as_run_directory_error(self.path):
            found: list[Balance] = files.read_json(self._reading, list[Balance])
            return found

    def _missing(self, rows: list[EpisodeRow]) -> list[EpisodeRow]:
        """Summaries of finished episodes that `rows` lacks, as after a kill between the two appends."""
        written = {(row.episode, row.attempt) for row in rows}
        missing: list[EpisodeRow] = []
        played = 0
        for phase in get_args(Phase):
            for number in self.numbers(phase):
                path = self._numbered(phase, number)
                keys = self._keys(path)
                if not written.issuperset((key.episode, key.attempt) for key in keys):
                    point = played if phase == "train" else number
                    missing += [EpisodeRow.of(each, phase, point) for each in self.played(phase, number)]
                    self._bounded(missing)
                played += len(_newest(keys))
        return [row for row in missing if (row.episode, row.attempt) not in written]

    def _bounded(self, rows: list[EpisodeRow]) -> list[EpisodeRow]:
        """Return rows, if they are few enough to be resampled and drawn. Raises `RunDirectoryError`."""
        checkpoints = {row.checkpoint for row in rows if row.phase == "test"}
        for count, limit, what in (
            (len(rows), EPISODES, "episodes"), (len(checkpoints), CHECKPOINTS, "checkpoints"),
        ):  # fmt: skip
            if count > limit:
                raise RunDirectoryError(f"{self.path} has more than {limit} {what}, the limit")
        return rows

    def _numbered(self, phase: str, number: int) -> Path:
        return self.path / _NUMBERED[phase].replace("*", f"{number:04d}")

    def _keys(self, path: Path) -> list[_Key]:
        with as_run_directory_error(self.path):
            found = list(islice(files.each_record(path, _Key), EPISODES + 1))
        if len(found) > EPISODES:
            raise RunDirectoryError(f"{path} has more than {EPISODES} episodes, the limit")
        return found

    def _read(self, path: Path, type_: type[files.Record]) -> list[files.Record]:
        with as_run_directory_error(self.path):
            return files.read_records(path, type_)


class _Key(msgspec.Struct):
    """What tells a finished episode; the rest of its trajectory is not decoded."""

    episode: Annotated[str, msgspec.Meta(max_length=KEY_CHARS)]
    attempt: int
    format: int = FORMAT


def _key(line: bytes) -> str:
    """The key of a trajectory, which comes first in a line as it is written here."""
    begin = b'{"episode":"'
    if line.startswith(begin):
        end = line.find(b'"', len(begin), len(begin) + KEY_CHARS)
        return line[len(begin) : end].decode(errors="replace") if end >= 0 else ""
    try:
        return msgspec.json.decode(line, type=_Key).episode
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # whoever reads the record says what is wrong with it


Attempt = TypeVar("Attempt", _Key, EpisodeRow, Trajectory)


def _newest(attempts: list[Attempt]) -> list[Attempt]:
    """The last of each episode, in the order of the first ones."""
    return list({each.episode: each for each in attempts}.values())


@contextmanager
def as_run_directory_error(path: Path) -> Iterator[None]:
    """Tell a folder that cannot be used, or is of another version, as `RunDirectoryError`."""
    try:
        yield
    except files.UnknownFormat as error:
        raise RunDirectoryError(str(error)) from error
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be used as a run's directory: {files.reason(error)}; "
            "check the path and its permissions, or name another one"
        ) from error
