"""One run as data frames of its episodes, checkpoints, sleeps and skills, with its other facts."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pandas

from speedrunner.config.condition import ConditionId
from speedrunner.config.names import identify_condition
from speedrunner.config.schema import Config
from speedrunner.results.frames import frame_episodes, frame_sleeps, list_usd, price_episodes
from speedrunner.results.ledger import Ledger, RunCosts
from speedrunner.results.libraries import LibraryStatistics, library_statistics
from speedrunner.results.means import RULES, add_costs, average_tests
from speedrunner.results.pricing import OWN, PriceBook, price_book
from speedrunner.results.skill_table import SkillHistory, frame_skills, skill_history
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.process_notes import caveats
from speedrunner.store.records import Process
from speedrunner.store.run_data import RunData, load
from speedrunner.store.stored_run import sleep_key

LIBRARY = LibraryStatistics.__struct_fields__
"""Columns of a checkpoint that describe its library."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RunResult:
    """One run with its frames.

    Attributes:
        book: the prices.
        episodes: see `frame_episodes`.
        checkpoints: the finished ones: rows of `average_tests`; from `read_result` those of
            `frame_checkpoints`, with the columns `LIBRARY`, and `sleep_usd_RULE` and `cost_usd_RULE` by each
            of `RULES`, as `usd_RULE` of `episodes`.
        unfinished: planned checkpoints that are not finished.
        sleeps: see `frame_sleeps`.
        skills: see `frame_skills`.
        processes: oldest first.
        caveats: notes on the results from the model configs.
    """

    path: str
    config: Config
    condition: ConditionId
    book: PriceBook = field(default=PriceBook(OWN, None))
    episodes: pandas.DataFrame
    checkpoints: pandas.DataFrame
    unfinished: list[int] = field(default_factory=list)
    sleeps: pandas.DataFrame = field(default_factory=pandas.DataFrame)
    skills: pandas.DataFrame = field(default_factory=pandas.DataFrame)
    processes: list[Process] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    _tests: dict[int, pandas.DataFrame] = field(default_factory=dict, init=False, repr=False)

    @property
    def seed(self) -> int:
        """Return the seed of the run."""
        return self.config.run.seed

    @property
    def points(self) -> list[int]:
        """Return the finished checkpoints, ascending."""
        points: list[int] = self.checkpoints.index.tolist()
        return points

    @property
    def started(self) -> float | None:
        """Return when its first process started, in Unix seconds; `None` before that."""
        return self.processes[0].started if self.processes else None

    def tests(self, point: int) -> pandas.DataFrame:
        """Return the scored test episodes of a checkpoint by task."""
        if point not in self._tests:
            own = self.episodes[(self.episodes["phase"] == "test") & (self.episodes["checkpoint"] == point)]
            scored = own[own["score"].notna()].drop_duplicates("task")  # only a damaged run has a task twice
            self._tests[point] = scored.set_index("task")
        return self._tests[point]

    def values(self, point: int, column: str) -> pandas.Series[float]:
        """Return the known values of a column in the scored test episodes of a checkpoint, by task.

        `cost_usd` is the USD of an episode with the checkpoint's share of the sleeps, `cost_usd_RULE` the
        same by another cache rule. A column of `LIBRARY` has one value, and so has `instability`: the
        standard deviation of the score over the checkpoints after the first.
        """
        if column in LIBRARY:
            return pandas.Series([float(self.checkpoints[column][point])]).dropna()
        if column == "instability":
            return pandas.Series([float(self.checkpoints["score"].iloc[1:].std())]).dropna()
        if column.startswith("cost_usd"):
            sleep = column.replace("cost", "sleep")
            return self.values(point, column[5:]) + float(self.checkpoints[sleep][point])
        return self.tests(point)[column].dropna().astype(float)


def note_silent_sleeps(sleeps: pandas.DataFrame) -> list[str]:
    """Return a line about the sleeps of a run, a row each, that could send no request; none without them."""
    if sleeps.empty:
        return []
    overflowed = sleeps["error"].str.contains("overflowed after 0 calls", na=False)
    silent = int((overflowed & (sleeps["llm_calls"] == 0)).sum())
    line = f"{silent} of {len(sleeps)} sleeps sent no request (the inducer's context overflowed)"
    return [line] * bool(silent)


def frame_run(run: RunData, costs: RunCosts | None = None) -> RunResult:
    """Return a run with its episodes, to be compared with others. Without a ledger these are the test
    episodes: only summary rows are read, which are small.

    Args:
        costs: as for `frame_episodes`.
    """
    rows = [row for row in run.rows if row.phase == "test"] if costs is None else run.episodes
    episodes = frame_episodes(rows, costs)
    book = PriceBook(OWN, None) if costs is None else costs.book
    checkpoints = average_tests(episodes, run.settings.run.test_episodes)
    return _make_result(run, episodes, checkpoints, book=book)


def _make_result(
    run: RunData, episodes: pandas.DataFrame, checkpoints: pandas.DataFrame, **more: Any
) -> RunResult:
    whole = checkpoints[checkpoints["complete"]]
    return RunResult(
        path=str(run.path),
        config=run.settings,
        condition=identify_condition(run.settings),
        episodes=episodes,
        checkpoints=whole,
        unfinished=sorted(set(run.checkpoints).difference(whole.index)),
        processes=run.processes,
        caveats=caveats([run]),
        **more,
    )


def read_or_describe(path: Path, prices: str | None) -> RunResult | str:
    """Return `read_result`; for a damaged run, the error in one line."""
    gc.disable()  # a run has hundreds of thousands of records without cycles: saves half of the time
    try:
        return read_result(path, prices)
    except DAMAGED as error:
        return damage(path, error)
    finally:
        gc.enable()


def read_result(path: Path, prices: str | None) -> RunResult:
    """Read a run, finished or not, and price it.

    Args:
        prices: a file of `configs/prices/`; `None`: the run's own list.

    Raises:
        StorageError, InvalidConfig: the run is damaged. Contradicting records raise further errors, which
            `speedrunner.store.discovery` lists.
    """
    run = load(path)
    if not run.processes and not run.rows:  # it was created and has not started
        costs, history, book = None, SkillHistory({}, [], {}), PriceBook(prices or OWN, None)
        episodes = frame_episodes([])
    else:
        ledger = Ledger.of(run)
        costs = ledger.price(book := price_book(run, prices))
        history, episodes = skill_history(run), frame_episodes(run.episodes, costs)
    skills, sleeps = frame_skills(history), frame_sleeps(run, costs)
    for rule in RULES:
        if costs is not None:
            costs = ledger.price(book.by_rule(rule))
        episodes[f"usd_{rule}"] = price_episodes(episodes, costs)
        sleeps[f"usd_{rule}"] = list_usd(map(sleep_key, sleeps["sleep"]), costs)
    checkpoints = add_costs(run, episodes, sleeps)
    policies = checkpoints["policy"]
    statistics = {
        policy: msgspec.structs.astuple(library_statistics(history.libraries[policy].definitions))
        for policy in policies.unique()
    }
    libraries = pandas.DataFrame([*map(statistics.get, policies)], checkpoints.index, [*LIBRARY])
    checkpoints = checkpoints.join(libraries.astype(float))
    return _make_result(run, episodes, checkpoints, book=book, sleeps=sleeps, skills=skills)
