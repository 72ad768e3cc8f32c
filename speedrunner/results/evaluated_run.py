"""One run with its test episodes, to be compared with others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas

from speedrunner.config.names import ConditionName, condition_name
from speedrunner.config.schema import Config
from speedrunner.results.checkpoints import frame_episodes
from speedrunner.results.ledger import RunCosts
from speedrunner.store.records import Process
from speedrunner.store.run_data import RunData


@dataclass(frozen=True, eq=False, kw_only=True)
class EvaluatedRun:
    """One run with its episodes.

    Attributes:
        episodes: see `frame_episodes`.
        unfinished: planned checkpoints that are not finished.
        processes: oldest first.
        unpriced: models without known prices.
        left_out: one line for each broken record that the results lack.
        name: identifies the run in the viewer's links.
    """

    path: str
    config: Config
    condition_name: ConditionName
    episodes: pandas.DataFrame
    unfinished: list[int] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    unpriced: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    name: str = ""
    _tests: dict[int, pandas.DataFrame] = field(default_factory=dict, init=False, repr=False)

    @property
    def seed(self) -> int:
        """Return the seed of the run."""
        return self.config.run.seed

    @cached_property
    def points(self) -> list[int]:
        """Return the finished checkpoints, ascending: those with all test episodes."""
        played = self.episodes[self.episodes["phase"] == "test"].groupby("checkpoint")["task"].nunique()
        return played.index[played >= self.config.run.test_episodes].tolist()

    @cached_property
    def _scored(self) -> pandas.DataFrame:
        scored = self.episodes[(self.episodes["phase"] == "test") & self.episodes["score"].notna()]
        return scored.drop_duplicates(["checkpoint", "task"])  # only a damaged run has a task twice

    def tests(self, point: int) -> pandas.DataFrame:
        """Return the scored test episodes of a checkpoint by task."""
        if point not in self._tests:
            self._tests[point] = self._scored[self._scored["checkpoint"] == point].set_index("task")
        return self._tests[point]

    def values(self, point: int, column: str) -> pandas.Series[float]:
        """Return the known values of a column in the scored test episodes of a checkpoint, by task."""
        return self.tests(point)[column].dropna().astype(float)

    def average(self, column: str) -> dict[int, float]:
        """Return the known means of a column over the scored test episodes, by finished checkpoint."""
        means = self._scored.groupby("checkpoint")[column].mean().reindex(self.points).dropna()
        return dict(zip(means.index.tolist(), means.tolist(), strict=True))


def frame_run(run: RunData, costs: RunCosts | None = None, name: str = "") -> EvaluatedRun:
    """Return a run with its episodes. Without a ledger these are the test episodes: only summary rows are
    read, which are small.

    Args:
        costs: as for `frame_episodes`.
        name: identifies the run in the viewer's links.
    """
    rows = [row for row in run.rows if row.phase == "test"] if costs is None else run.episodes
    found = EvaluatedRun(
        path=str(run.path),
        config=run.settings,
        condition_name=condition_name(run.settings),
        episodes=frame_episodes(rows, costs),
        processes=run.processes,
        unpriced=[] if costs is None else costs.unpriced,
        left_out=run.left_out or [],
        name=name,
    )
    return replace(found, unfinished=sorted(set(run.checkpoints).difference(found.points)))
