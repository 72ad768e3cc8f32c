"""The only reader of runs for people and reports: `load(path)`, then plain records or data frames.

It takes no lock and works while the run goes on: what is not finished is not there yet.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import yaml

from serving.balance import Balance
from serving.meter import LedgerRow
from speedrunner.store.labels import Labels
from speedrunner.store.policies import PolicyStore
from speedrunner.store.records import EpisodeRow, SleepRecord, Trajectory
from speedrunner.store.rundir import RunDirectory, RunDirectoryError, sleep_key
from speedrunner.store.summary import attempts

if TYPE_CHECKING:
    import pandas


def load(path: Path | str) -> RunData:
    """Open a run for reading. Raises `RunDirectoryError` when it is none, in one line."""
    return RunData(RunDirectory.open_for_reading(Path(path)))


class RunData:
    """One run as it is on the disk; every part is read when first asked for. `load` again for a fresh look.

    Everything may raise `StorageError`.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self._directory.path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration and versions."""
        try:
            config = yaml.safe_load(self._directory.config() or "")
        except yaml.YAMLError as error:
            cause = " ".join(str(error).split())
            raise RunDirectoryError(f"{self.path / 'config.yaml'} is no YAML: {cause}") from error
        if not isinstance(config, dict):
            raise RunDirectoryError(f"{self.path / 'config.yaml'} holds no configuration")
        return config

    @property
    def policies(self) -> PolicyStore:
        """The policy versions."""
        return self._directory.policies

    def trajectories(self, batch: int | None = None) -> list[Trajectory]:
        """Finished training episodes, of one batch or of all."""
        batches = self._directory.batches() if batch is None else [batch]
        return [episode for number in batches for episode in self._directory.trajectories(number)]

    def evaluations(self, checkpoint: int | None = None) -> list[Trajectory]:
        """Finished held-out episodes, of one checkpoint or of all."""
        checkpoints = self._directory.checkpoints() if checkpoint is None else [checkpoint]
        return [episode for number in checkpoints for episode in self._directory.evaluations(number)]

    @cached_property
    def episodes(self) -> list[EpisodeRow]:
        """One summary row per finished episode, also where a kill came before the row was written."""
        rows = self._directory.episodes()
        return rows + self._directory.missing_episodes(rows)

    @cached_property
    def sleeps(self) -> list[SleepRecord]:
        """The finished sleeps, ascending."""
        return self._directory.sleeps()

    @cached_property
    def requests(self) -> list[LedgerRow]:
        """The ledger. A row is `wasted` by itself, or when its attempt was given up.

        An attempt was given up when the episode (or sleep, by the label `episode` too) was finished or
        tried by another one. The newest attempt of one that is not finished counts as going on.
        """
        rows = self._directory.requests(LedgerRow)
        kept = attempts(rows)
        kept |= {row.episode: row.attempt for row in self.episodes}
        kept |= {sleep_key(sleep.sleep): sleep.attempt for sleep in self.sleeps}
        return [
            msgspec.structs.replace(row, wasted=row.wasted or _was_given_up(row.labels, kept)) for row in rows
        ]

    @cached_property
    def accounts(self) -> list[Balance]:
        """The ledger beside the engine's counters, as each process found it at its end."""
        return self._directory.accounts(Balance)

    def frame(self, table: Literal["episodes", "requests"]) -> pandas.DataFrame:
        """A table as a flat data frame: nested fields become columns such as `usage_prompt`, `task_name`."""
        import pandas

        rows: list[EpisodeRow] | list[LedgerRow] = self.episodes if table == "episodes" else self.requests
        frame = pandas.json_normalize([msgspec.to_builtins(row) for row in rows], sep="_")
        return frame.drop(columns="usage", errors="ignore")  # of requests without a usage


def _was_given_up(labels: dict[str, str], kept: dict[str, int]) -> bool:
    given = Labels.of(labels)
    return None not in (given.episode, given.attempt) and given.attempt != kept.get(given.episode or "")
