"""Load runs as data frames; `speedrunner.results` exports `load` and `load_all` for analyses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from speedrunner.config.names import identify_condition
from speedrunner.results.frames import frame_episodes, frame_requests, frame_sleeps
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import OWN, PriceBook, price_book
from speedrunner.store.discovery import runs_below
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

if TYPE_CHECKING:
    import pandas

TableName = Literal["episodes", "sleeps", "requests"]
"""The tables of a run."""

NAMES = ("run", "env", "method", "model_config", "seed")
"""The first columns of joint tables."""


class Run(RunData):
    """One run with its tables. `RunData` has the records behind them."""

    def frame(self, table: TableName, prices: str | None = None) -> pandas.DataFrame:
        """Return a table as a flat data frame; docs/data.md lists the tables and their columns.

        Args:
            prices: a price list of `configs/prices/`; `None`: the prices that the run used.

        Raises:
            ValueError: the table is unknown.
            StorageError: the run cannot be read; for episodes and sleeps, also if its ledger is missing.
            InvalidConfig: the price list does not exist.
        """
        if table not in get_args(TableName):
            raise ValueError(f"unknown table {table!r}; tables: {', '.join(get_args(TableName))}")
        # A run without a process has no prices yet.
        book = price_book(self, prices) if prices or self.processes else PriceBook(OWN, None)
        if table == "requests":
            return frame_requests(self, book)
        costs = run_costs(self, book)
        if table == "sleeps":
            return frame_sleeps(self, costs)
        episodes = frame_episodes(self.episodes, costs)
        tests = episodes[episodes["phase"] == "test"]["checkpoint"]
        played = tests.map(tests.value_counts()).reindex(episodes.index)
        planned = self.settings.run.test_episodes if len(tests) else 0
        episodes["complete"] = played.isna() | (played >= planned)
        return _flatten_tasks(episodes)


def _flatten_tasks(episodes: pandas.DataFrame) -> pandas.DataFrame:
    """Return the episodes with `task_env`, `task_name` and `task_index` instead of `task`."""
    place, tasks = [*episodes].index("task"), episodes.pop("task")
    for name in ("index", "name", "env"):
        episodes.insert(place, f"task_{name}", tasks.map(attrgetter(name)))
    return episodes.astype({"task_env": "str", "task_name": "str", "task_index": "int64"})


class Runs:
    """Several runs, by their folders, with joint tables."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)

    def frame(self, table: TableName, prices: str | None = None) -> pandas.DataFrame:
        """Return a table of all runs. The first columns are `run` (the folder's path), `env`, `method`,
        `model_config` (the models'; all three as in folder names) and `seed`.

        Takes and raises the same as `Run.frame`; `InvalidConfig` also for a run's configuration.
        """
        import pandas

        names, lengths = [], []
        columns: dict[str, list[pandas.Series[Any]]] = defaultdict(list)
        for path in self.paths:
            run = load(path)  # a run's records are freed after its frame
            config, frame = run.settings, run.frame(table, prices)
            names.append((str(run.path), *identify_condition(config).names, config.run.seed))
            lengths.append(len(frame))
            for name, values in frame.items():
                columns[str(name)].append(values)
        first = pandas.DataFrame(names, columns=[*NAMES])
        joined = {name: first[name].repeat(lengths).reset_index(drop=True) for name in NAMES}
        for name in [*columns]:  # one after the other, so that at most one is in memory twice
            joined[name] = pandas.concat(columns.pop(name), ignore_index=True)
        return pandas.DataFrame(joined, copy=False)


def load(path: Path | str) -> Run:
    """Open a run for reading. Raises `StorageError` if the folder is not a run."""
    return Run.open(path)


def load_all(*folders: Path | str) -> Runs:
    """Find all runs in folders and their subfolders, finished or not.

    Raises `StorageError`: a folder does not exist, or there is no run in them.
    """
    paths = runs_below(*map(Path, folders))
    if not paths:
        raise RunDirectoryError(f"no run found in {', '.join(map(str, folders))}")
    return Runs(paths)
