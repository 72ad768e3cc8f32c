"""Values that pages compute from all records of a run. The latest are kept until the run changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

from speedrunner.pages.episode_page import ViewedEpisode
from speedrunner.pages.library_page import Calls, count_calls
from speedrunner.pages.run_page import RunNumbers, read_numbers
from speedrunner.results.skill_table import SkillHistory, skill_history
from speedrunner.store.run_data import RunData, load

Value = TypeVar("Value")


@dataclass(frozen=True)
class Derived(Generic[Value]):
    """A value that was computed from a run's records, and the lines about broken records left out of it."""

    value: Value
    left_out: Sequence[str]

    @classmethod
    def of(cls, path: Path, compute: Callable[[RunData], Value]) -> Derived[Value]:
        """Compute a value from the records that the run has now."""
        run = load(path, skip_broken=True)
        return cls(compute(run), run.left_out or ())

    def shown_with(self, run: RunData) -> Value:
        """Return the value. The page that shows `run` then names the broken records, too."""
        if run.left_out is not None:
            run.left_out += [line for line in self.left_out if line not in run.left_out]
        return self.value


class RunValues:
    """Computes values of runs. One thread at a time reads a ledger, or all episodes for a history."""

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._episodes = lru_cache(maxsize=4)(ViewedEpisode.read)
        self._numbers = _keep(8, read_numbers)
        self._histories = _keep(16, skill_history)
        self._calls = lru_cache(maxsize=64)(_count_calls)

    def numbers(self, run: RunData) -> RunNumbers:
        """Return the numbers on a run's page."""
        with self._reading:
            return self._numbers(*_snapshot(run)).shown_with(run)

    def history(self, run: RunData) -> SkillHistory:
        """Return the skills of all versions and their calls."""
        with self._reading:
            return self._histories(*_snapshot(run)).shown_with(run)

    def library_calls(self, run: RunData, version: int) -> Calls:
        """Return the calls in the episodes that were played with a library version."""
        played = sum(row.policy == version for row in run.rows)
        return self._calls(run.path, _stamp(run), version, played).shown_with(run)

    def episode(self, run: RunData, episode: str) -> ViewedEpisode:
        """Return an episode. The latest are kept, except for those of sleeps, which may be repeated."""
        row = next((row for row in run.rows if row.episode == episode), None)
        if row is None:
            return ViewedEpisode.read(run.path, _stamp(run), episode, 0)
        return self._episodes(run.path, _stamp(run), episode, row.attempt)


def _snapshot(run: RunData) -> tuple[Path, object, int, int]:
    """Return a key that changes if another run replaces a run, or if the run grows."""
    return run.path, _stamp(run), len(run.rows), len(run.sleeps)


def _stamp(run: RunData) -> object:
    """Return a value that changes if another run replaces a run."""
    found = (run.path / "config.yaml").stat()
    return found.st_ino, found.st_mtime_ns


def _keep(size: int, compute: Callable[[RunData], Value]) -> Callable[..., Derived[Value]]:
    """Return a function that keeps the latest values, by a run's path and the rest of a key."""
    return lru_cache(maxsize=size)(lambda path, *key: Derived.of(path, compute))


def _count_calls(path: Path, stamp: object, version: int, episodes: int) -> Derived[Calls]:
    return Derived.of(path, lambda run: count_calls(run, version))
