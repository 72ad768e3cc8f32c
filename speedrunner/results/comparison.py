"""Compare runs at their checkpoints, paired by test task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from speedrunner.config.schema import Config, differences
from speedrunner.results.checkpoints import LIMITS, average_tests, frame_episodes
from speedrunner.results.inference import Estimate, bootstrap_mean
from speedrunner.results.ledger import RunCosts
from speedrunner.results.plain_rows import list_rows
from speedrunner.store.process_notes import ACCEPTABLE, caveats, changes, process_lines
from speedrunner.store.run_data import RunData

if TYPE_CHECKING:
    import pandas

METRICS = ("score", "llm_calls", "uncached", "cached", "output", "usd")
"""Columns of the frame of episodes that are compared."""

WORLD = ("env.primitives", "env.limits", "env.tasks")
"""Digests that make tasks with equal names different worlds."""


class CannotCompare(Exception):
    """The chosen runs do not exist, or have nothing in common that could be compared."""


class Compared(msgspec.Struct, frozen=True):
    """One run at one checkpoint.

    Attributes:
        rollouts: training rollouts before it.
        metric: see `METRICS`; tokens and USD are per test episode.
        run: its path.
        mean: over its test tasks; `None` if no value is known.
        difference: from the first run, over the tasks that both played; `None` without such tasks.
    """

    rollouts: int
    metric: str
    run: str
    mean: Estimate | None
    difference: Estimate | None


class Limited(msgspec.Struct, frozen=True):
    """The share of one run's test episodes at one checkpoint that limits ended, by limit, without zeros."""

    rollouts: int
    run: str
    shares: dict[str, float]


class Comparison(msgspec.Struct, frozen=True):
    """The result of a comparison; `notes` are caveats."""

    rows: list[Compared]
    limits: list[Limited]
    notes: list[str]


@dataclass(frozen=True)
class _Side:
    run: RunData
    config: Config
    costs: RunCosts
    tests: pandas.DataFrame

    @cached_property
    def whole(self) -> list[int]:
        """Return the checkpoints with all test episodes played."""
        counts = self.tests.groupby("checkpoint").size()
        planned = self.config.run.test_episodes
        return [point for point in self.run.checkpoints if counts.get(point, 0) >= planned]

    @cached_property
    def limits(self) -> dict[int, dict[str, float]]:
        """Return, by checkpoint, the share of test episodes that each limit ended, without zeros."""
        shares = average_tests(self.tests)[[*LIMITS]]
        return {
            int(row["checkpoint"]): {name: row[name] for name in LIMITS if row[name]}
            for row in list_rows(shares)
        }

    def average_tasks(self, point: int, metric: str) -> pandas.Series[float]:
        """Return the mean of the scored episodes of each test task that has a value."""
        scored = self.tests[(self.tests["checkpoint"] == point) & self.tests["score"].notna()]
        return scored.groupby("task", sort=False)[metric].mean().dropna()


def compare(runs: Sequence[RunData], costs: Sequence[RunCosts]) -> Comparison:
    """Compare each run with the first one, at the checkpoints that all of them have finished.

    Args:
        costs: the costs of each run.

    Raises:
        CannotCompare: they play different environments, or have no finished checkpoint in common.
        InvalidConfig, StorageError: a run cannot be read.
    """
    sides = [_side(run, cost) for run, cost in zip(runs, costs, strict=True)]
    first, *others = sides
    for side in others:
        if unlike := list_world_differences(first.run, side.run):
            raise CannotCompare(
                f"{side.run.path} uses another environment than {first.run.path}: {', '.join(unlike)}"
            )
    points = [point for point in first.whole if all(point in side.whole for side in others)]
    if not points:
        raise CannotCompare(
            "no checkpoint was finished by all runs: "
            + "; ".join(f"{side.run.path} has {_join_points(side.whole) or 'none'}" for side in sides)
        )
    rows, limits = [], []
    for point in points:
        limits += [Limited(point, str(side.run.path), side.limits[point]) for side in sides]
        for metric in METRICS:
            base = first.average_tasks(point, metric)
            for side in sides:
                own = side.average_tasks(point, metric)
                pairs = [] if side is first else (own - base.reindex(own.index)).dropna().tolist()
                mean, difference = bootstrap_mean(own.tolist()), bootstrap_mean(pairs)
                rows.append(Compared(point, metric, str(side.run.path), mean, difference))
    notes = [note for side in sides for note in _notes(side, first, points)]
    return Comparison(rows, limits, notes + caveats(each for side in sides for each in side.run.processes))


def _side(run: RunData, costs: RunCosts) -> _Side:
    episodes = frame_episodes(run.episodes, costs)
    return _Side(run, run.settings, costs, episodes[episodes["phase"] == "test"])


def list_world_differences(first: RunData, second: RunData) -> list[str]:
    """Return the differences between two runs that make tasks with equal names different worlds."""
    unlike = [each for each in differences(first.settings, second.settings) if each.startswith("env.")]
    return unlike or [each for each in list_changes(first, second) if each.startswith(WORLD)]


def list_changes(first: RunData, second: RunData) -> list[str]:
    """Return the differences between the last processes of two runs, if both are recorded."""
    newest = [run.processes[-1:] for run in (first, second)]
    return changes(*newest[0], *newest[1]) if all(newest) else []


def _notes(side: _Side, first: _Side, points: list[int]) -> list[str]:
    """Return the caveats of a run's numbers."""
    played = side.tests[side.tests["checkpoint"].isin(points)]
    missing = sorted(set(side.run.checkpoints).difference(side.whole))
    unscored = int(played["score"].isna().sum())
    tasks = set(first.tests[first.tests["checkpoint"].isin(points)]["task"])
    alone = len(set(played["task"]) - tasks)
    found = {
        f"is not finished: no complete evaluation after {_join_points(missing)} rollouts": missing,
        f"{unscored} test episodes ended by an infrastructure error and are excluded from means": unscored,
        f"{alone} of its test tasks were not played by {first.run.path} and are excluded from pairs": alone,
        f"unknown prices of {', '.join(side.costs.unpriced)}": side.costs.unpriced,
    }
    code = ", ".join(each for each in list_changes(first.run, side.run) if each.startswith(ACCEPTABLE))
    found[f"was played with other code than {first.run.path}: {code}"] = code
    texts = [text for text, holds in found.items() if holds] + process_lines(side.run.processes)
    return [f"{side.run.path}: {text}" for text in texts]


def _join_points(points: list[int]) -> str:
    return ", ".join(map(str, points))
