"""The readers of runs: `load(path)` for people and reports, `History` for the methods.

They take no lock and work while the run goes on: what is not finished is not there yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from serving.balance import Balance
from serving.meter import LedgerRow
from serving.usage import Prices
from speedrunner.config.plain_yaml import NotPlain, read_plain
from speedrunner.config.schema import Config, InvalidConfig, from_stored
from speedrunner.store.labels import attempt_of, attempts
from speedrunner.store.records import EpisodeRow, Phase, Process, SleepRecord, TrainingEnd, Trajectory
from speedrunner.store.stored_run import RunDirectoryError, StoredRun, sleep_key

if TYPE_CHECKING:
    import pandas

    from speedrunner.store.frames import Table


def load(path: Path | str) -> RunData:
    """Open a run for reading. Raises `RunDirectoryError` when it is none, in one line."""
    return RunData(StoredRun.open_for_reading(Path(path)))


class RunData:
    """One run as it is on the disk; every part is read when first asked for. `load` again for a fresh look.

    Everything may raise `StorageError`.

    Attributes:
        directory: its files.
        path: the run's directory.
        policies: the policy versions.
    """

    def __init__(self, directory: StoredRun) -> None:
        self.directory = directory
        self.path = directory.path
        self.policies = directory.policies

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        try:
            config = read_plain(self.directory.config() or "")
        except NotPlain as error:
            raise RunDirectoryError(f"{self.path / 'config.yaml'} cannot be read: {error}") from error
        if not isinstance(config, dict):
            raise RunDirectoryError(f"{self.path / 'config.yaml'} holds no configuration")
        return config

    @cached_property
    def settings(self) -> Config:
        """The same, typed. Raises `InvalidConfig`, which names the file."""
        try:
            return from_stored(self.config)
        except InvalidConfig as error:
            raise InvalidConfig(f"{self.path / 'config.yaml'}: {error}") from None

    @property
    def training_end(self) -> TrainingEnd | None:
        """Where training ended before its plan did, if it has."""
        return self.directory.training_end

    @property
    def checkpoints(self) -> list[int]:
        """Training episodes before each evaluation that the run has, or is to have."""
        planned, end = self.settings.run.checkpoints, self.training_end
        return planned if end is None else [*(each for each in planned if each < end.rollouts), end.rollouts]

    def trajectories(self, batch: int | None = None) -> list[Trajectory]:
        """Finished training episodes, of one batch or of all."""
        return list(self.played("train")) if batch is None else self.directory.trajectories("train", batch)

    def evaluations(self, checkpoint: int | None = None) -> list[Trajectory]:
        """Finished held-out episodes, of one checkpoint or of all."""
        if checkpoint is None:
            return list(self.played("test"))
        return self.directory.trajectories("test", checkpoint)

    def played(self, phase: Phase) -> Iterator[Trajectory]:
        """Finished episodes, one after the other; one at a time is in memory."""
        for number in self.directory.numbers(phase):
            yield from self.directory.each_trajectory(phase, number)

    @cached_property
    def episodes(self) -> list[EpisodeRow]:
        """One summary row per finished episode, also where a kill came before the row was written."""
        return self.directory.episodes()

    @cached_property
    def rows(self) -> list[EpisodeRow]:
        """The same as they are written, without a look at the episodes themselves: those that a kill came
        between are missing until the run goes on."""
        return list({row.episode: row for row in self.directory.rows()}.values())

    @cached_property
    def sleeps(self) -> list[SleepRecord]:
        """The finished sleeps, ascending."""
        return self.directory.sleeps()

    @cached_property
    def requests(self) -> list[LedgerRow]:
        """The ledger. A row is `wasted` by itself, or when its attempt was given up.

        An attempt was given up when the episode (or sleep, by the label `episode` too) was finished or
        tried by another one. The newest attempt of one that is not finished counts as going on.
        """
        rows = self.directory.requests()
        kept = attempts(rows)
        kept |= {row.episode: row.attempt for row in self.episodes if not row.ending.is_fault}
        kept |= {sleep_key(sleep.sleep): sleep.attempt for sleep in self.sleeps}
        counting = {(episode, str(attempt)) for episode, attempt in kept.items()}

        def was_given_up(row: LedgerRow) -> bool:
            given = attempt_of(row.labels)
            return given not in counting and None not in given

        return [msgspec.structs.replace(row, wasted=True) if was_given_up(row) else row for row in rows]

    @cached_property
    def processes(self) -> list[Process]:
        """Those that worked on it, each with all that determined its results."""
        return self.directory.processes()

    @cached_property
    def accounts(self) -> list[Balance]:
        """The ledger beside the engine's counters, as each process found it at its end."""
        return self.directory.accounts()

    @property
    def prices(self) -> dict[str, Prices]:
        """The price list of each model that the newest process went by; none where no process is recorded."""
        return self.processes[-1].prices if self.processes else {}

    def trajectory(self, key: str) -> Trajectory:
        """One finished episode. Of its key, zeros (`train/7`) and an end that is not needed may be left out.

        Raises:
            RunDirectoryError: there is none, or there are several.
        """
        there = sorted({row.episode for row in self.episodes})
        full = "/".join(part.zfill(4) if part.isdecimal() else part for part in key.split("/"))
        found = [each for each in there if each in (key, full)]
        found = found or [each for each in there if each.startswith(full)]
        if len(found) > 1:
            raise RunDirectoryError(f"{len(found)} episodes begin with {key}: {found[0]} to {found[-1]}")
        if not found:
            known = [[each for each in there if each.startswith(phase)] for phase in get_args(Phase)]
            spans = ", ".join(f"{keys[0]} to {keys[-1]}" for keys in known if keys)
            raise RunDirectoryError(f"{self.path} has no episode {key!r}; it has {spans or 'none yet'}")
        row = next(each for each in self.episodes if each.episode == found[0])
        trajectory = self.find(row)
        if trajectory is None:
            raise RunDirectoryError(f"{self.path} has a row of {row.episode}, and not the episode")
        return trajectory

    def find(self, row: EpisodeRow) -> Trajectory | None:
        """The episode of a row; no other one is decoded."""
        if row.phase == "test":
            return self.directory.find("test", row.checkpoint, row.episode)
        before = {each.checkpoint for each in self.rows if each.phase == "train"}
        likely = sum(each < row.checkpoint for each in before)
        batches = sorted(self.directory.numbers("train"), key=lambda batch: abs(batch - likely))
        found = (self.directory.find("train", batch, row.episode) for batch in batches)
        return next((each for each in found if each is not None), None)

    def lines(self, phase: Phase) -> Iterator[tuple[str, bytes]]:
        """Every finished episode of a phase, with every attempt: its key, and its line of JSON."""
        return self.directory.lines(phase)

    def sleep(self, number: int) -> SleepRecord:
        """One finished sleep. Raises `RunDirectoryError` where there is none of this number."""
        for record in self.sleeps:
            if record.sleep == number:
                return record
        there = f"{sleep_key(1)} to {sleep_key(self.sleeps[-1].sleep)}" if self.sleeps else "none yet"
        raise RunDirectoryError(f"{self.path} has no {sleep_key(number)}; it has {there}")

    def frame(self, table: Table) -> pandas.DataFrame:
        """A table as a flat data frame; docs/data.md lists the tables and their columns.

        Raises `ValueError` where there is no such table.
        """
        from speedrunner.store import frames

        return frames.frame(self, table)


class History:
    """What an inducer may read (Algorithm 1): training trajectories, each tagged with its policy, past
    policies (as files), and what earlier sleeps did; never a held-out episode."""

    def __init__(self, directory: StoredRun) -> None:
        self._directory = directory

    @property
    def folders(self) -> dict[str, Path]:
        """The files behind it, for code that reads them itself: `trajectories`, `policies` and `sleeps`."""
        return {name: self._directory.path / name for name in ("trajectories", "policies", "sleeps")}

    def batches(self) -> list[int]:
        """Batches played so far, ascending."""
        return self._directory.numbers("train")

    def batch(self, number: int) -> list[Trajectory]:
        """The trajectories of one batch, in the order in which its tasks were drawn."""
        return sorted(self._directory.trajectories("train", number), key=lambda each: each.episode)

    def sleeps(self, before: int) -> list[SleepRecord]:
        """Sleeps with a number under `before`, ascending; one that is slept again has its old record yet."""
        return [record for record in self._directory.sleeps() if record.sleep < before]

    def count(self) -> int:
        """How many trajectories there are."""
        return self._directory.count("train")
