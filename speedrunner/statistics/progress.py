"""How a run's test episodes fare from checkpoint to checkpoint, from its summary rows alone.

`speedrunner.costs.checkpoints` has the same from the ledger, with sleeps, prices and what was wasted: for
tables. This is for a look at a run at any time, as its ledger may take seconds to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from speedrunner.store.records import EpisodeRow


class Progress(msgspec.Struct, frozen=True):
    """Means over the test episodes of one checkpoint so far; those without a score are in none.

    Attributes:
        rollouts: training episodes before it.
        episodes: that are finished, `scored` of them with a score.
        uncached, cached, output: tokens of the episode's own requests.
    """

    rollouts: int
    episodes: int
    scored: int
    score: float | None
    llm_calls: float | None
    uncached: float | None
    cached: float | None
    output: float | None


def progress(rows: Sequence[EpisodeRow]) -> list[Progress]:
    """Of each checkpoint that has a finished test episode, ascending."""
    tests = [row for row in rows if row.phase == "test"]
    found = []
    for point in sorted({row.checkpoint for row in tests}):
        here = [row for row in tests if row.checkpoint == point]
        scored = [row for row in here if row.score is not None]

        def mean(
            of: Callable[[EpisodeRow], float | None], rows: Sequence[EpisodeRow] = scored
        ) -> float | None:
            return fmean(of(row) or 0.0 for row in rows) if rows else None

        found.append(
            Progress(
                rollouts=point,
                episodes=len(here),
                scored=len(scored),
                score=mean(lambda row: row.score),
                llm_calls=mean(lambda row: row.llm_calls),
                uncached=mean(lambda row: row.usage.uncached),
                cached=mean(lambda row: row.usage.cached),
                output=mean(lambda row: row.usage.completion),
            )
        )
    return found
