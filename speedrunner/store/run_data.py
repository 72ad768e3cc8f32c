"""Read runs: `load` gives people and commands a `RunData`.

    stored_run.RunFiles   the layout of a run        ┐
    EpisodeFile           finds and reads episodes   ├─ RunData ── history.History, for methods
    records               typed records              ┘      └───── results.loading.Run, for notebooks

Reading takes no lock and works while a run is played; unfinished records are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, get_args

import msgspec

from serving.meter import LedgerRow, Reconciliation
from speedrunner.config.schema import Config, InvalidConfig, from_mapping
from speedrunner.plain.plain_yaml import NotPlain, read_yaml
from speedrunner.store import files, json_records
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import (
    FORMAT,
    EpisodeRow,
    OfferedTools,
    Phase,
    Process,
    SleepRecord,
    Trajectory,
    attempt_of,
    attempts,
)
from speedrunner.store.stored_run import RunDirectoryError, RunFiles, State, sleep_key

if TYPE_CHECKING:
    from speedrunner.store.ledger_columns import LedgerColumns

Part = TypeVar("Part", bound="EpisodeKey")


def load(path: Path | str) -> RunData:
    """Open a run for reading. Raises `RunDirectoryError` if the folder is not a run."""
    return RunData.open(path)


class RunData:
    """A snapshot of one run. Each part is read on first access and cached; call `load` again to see newer
    data.

    Every access may raise `StorageError`, also for a damaged record, with its file and line.

    Attributes:
        path: the run's directory.
        files: its files.
        policies: the policy versions, read at each call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = RunFiles(path)
        self.policies = self.files.policies
        self._episode_files: dict[tuple[Phase, int], EpisodeFile] = {}

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a run for reading. Raises `RunDirectoryError` if the folder is not a run."""
        run = cls(Path(path))
        with files.explain_errors(run.path, "opened"):
            if not run.path.exists():
                raise RunDirectoryError(f"{path} does not exist: give the directory of a run")
            run.files.check()
            if not run.files.config.exists():
                raise RunDirectoryError(f"{path} contains no run: it has no config.yaml")
            _ = run.config_text
        return run

    @cached_property
    def config_text(self) -> str:
        """Return the text of `config.yaml`."""
        return files.read_content(self.files.config).decode(errors="replace")

    @cached_property
    def config(self) -> dict[str, Any]:
        """Return the resolved configuration."""
        try:
            config = read_yaml(self.config_text)
        except NotPlain as error:
            raise RunDirectoryError(f"{self.files.config} cannot be read: {error}") from error
        if not isinstance(config, dict):
            raise RunDirectoryError(f"{self.files.config} contains no configuration")
        return config

    @cached_property
    def settings(self) -> Config:
        """Return the typed configuration. Raises `InvalidConfig`, which names the file."""
        try:
            return from_mapping(self.config)
        except InvalidConfig as error:
            raise InvalidConfig(f"{self.files.config}: {error}") from None

    @cached_property
    def state(self) -> State:
        """Return the finished steps and the run's secret."""
        return self.files.read_state()

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the run's state, which identifies the run by its secret."""
        return hashlib.sha256(json_records.encode(self.state)).hexdigest()

    @property
    def checkpoints(self) -> list[int]:
        """Return the number of training episodes before each evaluation, finished or planned."""
        return self.settings.run.checkpoints

    def batches(self) -> list[int]:
        """Return the batches that have training episodes, ascending."""
        return self.files.numbers("train")

    def trajectories(self, batch: int | None = None) -> list[Trajectory]:
        """Return the finished training episodes of one batch or of all; see `played`."""
        return list(self.played("train", batch))

    def evaluations(self, checkpoint: int | None = None) -> list[Trajectory]:
        """Return the finished held-out episodes of one checkpoint or of all; see `played`."""
        return list(self.played("test", checkpoint))

    def played(
        self, phase: Phase, number: int | None = None, *, every_attempt: bool = False
    ) -> Iterator[Trajectory]:
        """Yield finished episodes in the order in which they ended, one at a time in memory.

        Args:
            number: a batch, or the checkpoint of an evaluation; `None`: the whole phase.
            every_attempt: also yield older attempts at an episode that was repeated after an infrastructure
                error.
        """
        for place in self.files.numbers(phase) if number is None else [number]:
            file = self._episode_file(phase, place)
            yield from file.read(file.attempts if every_attempt else file.newest)

    def parts(self, phase: Phase, part: type[Part], number: int | None = None) -> Iterator[Part]:
        """Yield parts of finished episodes, of a batch or an evaluation in the order of their first attempts.
        Fewer fields take less time; those of one file are in memory together.

        Args:
            part: a type with some of the fields of `Trajectory`.
        """
        for place in self.files.numbers(phase) if number is None else [number]:
            read = json_records.iterate_records(self.files.numbered(phase, place), part)
            yield from {played.episode: played for played in read}.values()

    def count(self, phase: Phase) -> int:
        """Return the number of finished episodes of a phase, without decoding their texts."""
        return sum(len(self._episode_file(phase, part).newest) for part in self.files.numbers(phase))

    @cached_property
    def episodes(self) -> list[EpisodeRow]:
        """Return one summary row per finished episode, including rows that a kill kept from being written.

        A row is written after its episode: if there are as many of both, none is missing, and no episode is
        read. `speedrunner verify` finds damaged episodes and rows without an episode.
        """
        paths = [
            self.files.numbered(phase, n) for phase in get_args(Phase) for n in self.files.numbers(phase)
        ]
        written = {(row.episode, row.attempt) for row in self.written_rows}
        is_whole = sum(map(json_records.count_lines, paths)) == len(written)
        return _newest(self.written_rows if is_whole else self.written_rows + self.missing_rows)

    @cached_property
    def rows(self) -> list[EpisodeRow]:
        """Return the written rows, one per finished episode, without reading episodes.

        A row that a kill kept from being written is missing until the run is resumed.
        """
        return _newest(self.written_rows)

    @cached_property
    def written_rows(self) -> list[EpisodeRow]:
        """Return the rows of `episodes.jsonl`, one for every attempt that ended."""
        return json_records.read_records(self.files.episodes, EpisodeRow)

    @cached_property
    def missing_rows(self) -> list[EpisodeRow]:
        """Return the rows that `episodes.jsonl` lacks after a kill, made from the episodes."""
        written = {(row.episode, row.attempt) for row in self.written_rows}
        missing: list[EpisodeRow] = []
        played = 0
        for phase in get_args(Phase):
            for number in self.files.numbers(phase):
                file = self._episode_file(phase, number)
                lost = [entry for entry in file.attempts if (entry.episode, entry.attempt) not in written]
                point = played if phase == "train" else number
                missing += [summarize_episode(trajectory, phase, point) for trajectory in file.read(lost)]
                played += len(file.newest)
        return missing

    @cached_property
    def sleeps(self) -> list[SleepRecord]:
        """Return the finished sleeps, ascending."""
        return [self.read_sleep(number) for number in self.files.numbers("sleep")]

    def read_sleep(self, number: int) -> SleepRecord:
        """Read a finished sleep, without the others."""
        path = self.files.numbered("sleep", number)
        record = json_records.read_record(path, SleepRecord)
        if record.sleep != number:
            raise RunDirectoryError(f"{path} is the record of sleep {record.sleep}: copy the whole run again")
        return record

    @cached_property
    def ledger(self) -> list[LedgerRow]:
        """Return the ledger as written."""
        return json_records.read_records(self.files.requests, LedgerRow)

    @cached_property
    def requests(self) -> list[LedgerRow]:
        """Return the ledger with `wasted` also set on the rows of aborted attempts; see `columns`."""
        rows = zip(self.ledger, self.columns.wasted.tolist(), strict=False)  # the run may be played
        return [msgspec.structs.replace(row, wasted=True) if wasted else row for row, wasted in rows]

    @cached_property
    def columns(self) -> LedgerColumns:
        """Return the ledger as columns, with `wasted` also set on the rows of aborted attempts.

        An attempt is aborted if another attempt finished or retried the episode (or the sleep, which uses the
        label `episode` too). The newest attempt at an unfinished one counts as running. A kill can also lose
        single answers of a sleep, which asks for them again: those that none of its turns has.
        """
        from speedrunner.store.ledger_columns import read_columns  # numpy takes a tenth of a second

        columns = read_columns(self.files.requests)
        if line := columns.find_copy():
            what = f"line {line} is a copy of an earlier line, whose tokens would count twice"
            raise RunDirectoryError(f"{self.files.requests}, {what}: copy the whole run again")
        given = [attempt_of(labels) for labels in columns.labels]
        kept = attempts(columns.labels)
        kept |= {row.episode: row.attempt for row in self.episodes if not row.termination.is_fault}
        kept |= {sleep_key(sleep.sleep): sleep.attempt for sleep in self.sleeps}
        counting = {(episode, str(attempt)) for episode, attempt in kept.items()}
        wasted = columns.mark([key not in counting and None not in key for key in given])
        answers: dict[tuple[str | None, str | None], set[str]] = {
            (sleep_key(sleep.sleep), str(sleep.attempt)): {turn.request for turn in sleep.turns} - {""}
            for sleep in self.sleeps
        }
        asked = columns.mark([bool(answers.get(key)) for key in given])
        wasted |= asked & ~columns.find(set[str]().union(*answers.values()))
        return replace(columns, wasted=columns.wasted | wasted)

    @cached_property
    def tools(self) -> list[OfferedTools]:
        """Return the tools that each role was offered."""
        return json_records.read_records(self.files.tools, OfferedTools)

    @cached_property
    def processes(self) -> list[Process]:
        """Return the processes that worked on the run, each with everything that determined its results."""
        return json_records.read_records(self.files.processes, Process)

    @cached_property
    def reconciliations(self) -> list[Reconciliation]:
        """Return the ledger compared with the engine's counters, one record per process and engine that it
        stopped. A killed process leaves none.
        """
        return json_records.read_records(self.files.reconciliations, Reconciliation)

    @property
    def model_name(self) -> str:
        """Return the model of the newest process, or as configured."""
        return self.processes[-1].model.name if self.processes else self.settings.model.name

    def trajectory(self, key: str) -> Trajectory:
        """Return one finished episode. The key may lack zeros (`train/7`).

        Raises `RunDirectoryError`: no episode has this key.
        """
        rows = {row.episode: row for row in self.episodes}
        full = "/".join(part.zfill(4) if part.isdecimal() else part for part in key.split("/"))
        row = rows.get(key) or rows.get(full)
        if row is None:
            known = [
                [episode for episode in sorted(rows) if episode.startswith(phase)]
                for phase in get_args(Phase)
            ]
            spans = ", ".join(f"{keys[0]} to {keys[-1]}" for keys in known if keys)
            raise RunDirectoryError(f"{self.path} has no episode {key!r}; it has {spans or 'none yet'}")
        trajectory = self.find(row)
        if trajectory is None:
            raise RunDirectoryError(f"{self.path} has a row of {row.episode}, and not the episode")
        return trajectory

    def find(self, row: EpisodeRow) -> Trajectory | None:
        """Return the newest attempt at the episode of a row, without decoding others."""
        numbers = self.batches() if row.phase == "train" else [row.checkpoint]
        for file in (self._episode_file(row.phase, number) for number in numbers):
            if entries := [entry for entry in file.newest if entry.episode == row.episode]:
                return next(file.read(entries), None)
        return None

    def sleep(self, number: int) -> SleepRecord:
        """Return one finished sleep. Raises `RunDirectoryError` if it does not exist."""
        numbers = self.files.numbers("sleep")
        if number in numbers:
            return self.read_sleep(number)
        there = f"{sleep_key(numbers[0])} to {sleep_key(numbers[-1])}" if numbers else "none yet"
        raise RunDirectoryError(f"{self.path} has no {sleep_key(number)}; it has {there}")

    def _episode_file(self, phase: Phase, number: int) -> EpisodeFile:
        path = self.files.numbered(phase, number)
        return self._episode_files.setdefault((phase, number), EpisodeFile(path))


def _newest(rows: list[EpisodeRow]) -> list[EpisodeRow]:
    """Return the last row of each episode, in the order of the first rows."""
    return list({row.episode: row for row in rows}.values())


class EpisodeKey(msgspec.Struct):
    """The key of a finished episode; the rest of its trajectory is not decoded."""

    episode: str
    attempt: int
    format: int = FORMAT


class Entry(NamedTuple):
    """Position of one attempt at an episode in its file.

    Attributes:
        line: line number, from 1.
        start, size: position and length of the line in bytes, without its newline.
    """

    episode: str
    attempt: int
    line: int
    start: int
    size: int


class EpisodeFile:
    """The trajectories of one batch or evaluation. Every access may raise `StorageError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def attempts(self) -> list[Entry]:
        """Return every attempt that ended, in order; a torn tail is left out."""
        entries, decode = list[Entry](), json_records.make_decoder(EpisodeKey)
        for number, start, line in json_records.iterate_lines(self.path):
            key = decode(line, f"{self.path}, line {number},")
            entries.append(Entry(key.episode, key.attempt, number, start, len(line)))
        return entries

    @cached_property
    def newest(self) -> list[Entry]:
        """Return the newest attempt at each episode."""
        last = {entry.episode: entry for entry in self.attempts}
        return [entry for entry in self.attempts if last[entry.episode] is entry]

    def read(self, entries: Sequence[Entry]) -> Iterator[Trajectory]:
        """Yield the trajectories of attempts, one at a time in memory."""
        places = [(entry.start, entry.size) for entry in entries]
        decode = json_records.make_decoder(Trajectory)
        lines = json_records.lines_at(self.path, places) if places else ()
        for entry, line in zip(entries, lines, strict=True):
            yield decode(line, f"{self.path}, line {entry.line},")
