"""One run as data frames of its episodes, checkpoints, sleeps and skills, with its other facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
import pandas

from speedrunner.config.names import condition_name
from speedrunner.results.checkpoints import add_costs, frame_episodes, frame_sleeps
from speedrunner.results.evaluated_run import EvaluatedRun
from speedrunner.results.ledger import run_costs
from speedrunner.results.libraries import LibraryStatistics, library_statistics
from speedrunner.results.pricing import OWN, price_book
from speedrunner.results.skill_costs import SkillCost, skill_costs
from speedrunner.results.skill_savings import frame_savings, skill_savings
from speedrunner.results.skill_table import SkillHistory, skill_history
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import load

LIBRARY = LibraryStatistics.__struct_fields__
"""Columns of a checkpoint that describe its library."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RunResult(EvaluatedRun):
    """One run with everything that a report shows.

    Attributes:
        prices: name of the price list.
        checkpoints: rows of `frame_checkpoints` that are `whole`, with the columns `LIBRARY`.
        sleeps: see `frame_sleeps`.
        skills: one row per skill, with the fields of `SkillCost`.
        savings: one row per skill; see `frame_savings`.
        caveats: notes on the results from the model configs.
    """

    prices: str
    checkpoints: pandas.DataFrame
    sleeps: pandas.DataFrame
    skills: pandas.DataFrame
    savings: pandas.DataFrame
    caveats: list[str] = field(default_factory=list)

    @cached_property
    def points(self) -> list[int]:
        """Return the finished checkpoints, ascending."""
        return self.checkpoints.index.tolist()

    def values(self, point: int, column: str) -> pandas.Series[float]:
        """Return the values as the base class does; `cost_usd` adds the share of the sleeps."""
        if column != "cost_usd":
            return super().values(point, column)
        return super().values(point, "usd") + float(self.checkpoints["sleep_usd"][point])

    def average(self, column: str) -> dict[int, float]:
        """Return the known means as the base class does, or the known values of a column of `checkpoints`."""
        if column not in self.checkpoints:
            return super().average(column)
        known = self.checkpoints[column].dropna()
        return dict(zip(known.index.tolist(), known.tolist(), strict=True))

    @property
    def started(self) -> float | None:
        """Return when its first process started, in Unix seconds; `None` before that."""
        return self.processes[0].started if self.processes else None


def count_terminations(runs: Iterable[RunResult]) -> dict[str, int]:
    """Count the episodes of runs by termination, the most frequent first."""
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.episodes["termination"])
    return dict(counts.most_common())


def read_result(path: Path, prices: str | None) -> RunResult:
    """Read a run, finished or not, and price it. Broken records are left out and named.

    Args:
        prices: a file of `configs/prices/`; `None`: the run's own list.

    Raises:
        StorageError, InvalidConfig: the run is damaged. Contradicting records raise further errors, which
            `speedrunner.store.discovery` lists.
    """
    run = load(path, skip_broken=True)
    config = run.settings
    if not run.processes and not run.rows:  # it was created and has not started
        costs, history, name = None, SkillHistory({}, [], [], []), prices or OWN
        episodes = frame_episodes([])
    else:
        (costs,) = run_costs([run], [price_book(run, prices)])
        history, name = skill_history(run), costs.book.name
        episodes = frame_episodes(run.episodes, costs)
    skills = [] if costs is None else skill_costs(run, costs, history)
    savings = [] if costs is None else skill_savings(run, history, costs)
    sleeps = frame_sleeps(run, costs)
    checkpoints = add_libraries(add_costs(run, episodes, sleeps), history)
    whole = checkpoints[checkpoints["whole"]]
    return RunResult(
        path=str(path),
        config=config,
        condition_name=condition_name(config),
        prices=name,
        checkpoints=whole,
        unfinished=sorted(set(run.checkpoints).difference(whole.index)),
        episodes=episodes,
        sleeps=sleeps,
        skills=frame_skills(skills),
        savings=frame_savings(savings),
        processes=run.processes,
        caveats=caveats(run.processes),
        left_out=run.left_out or [],
    )


def add_libraries(checkpoints: pandas.DataFrame, history: SkillHistory) -> pandas.DataFrame:
    """Return checkpoints with the columns `LIBRARY` of their policies."""
    statistics = {
        policy: library_statistics(history.libraries[policy].definitions)
        for policy in checkpoints["policy"].unique()
    }
    rows = [msgspec.structs.astuple(statistics[policy]) for policy in checkpoints["policy"]]
    return checkpoints.join(pandas.DataFrame(rows, checkpoints.index, [*LIBRARY]).astype(float))


def frame_skills(skills: list[SkillCost]) -> pandas.DataFrame:
    """Return one row per skill that a run ever had."""
    found = pandas.DataFrame(map(msgspec.structs.asdict, skills), columns=[*SkillCost.__struct_fields__])
    return found.astype({"removed": "Int64"})
