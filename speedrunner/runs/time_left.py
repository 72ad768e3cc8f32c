"""Estimate the time that a run still needs."""

from __future__ import annotations

from collections.abc import Collection
from statistics import fmean

FEW = 3
"""Minimum number of finished episodes for an estimate."""


def time_left(
    episodes: int,
    llm_calls: Collection[int],
    s_per_call: float,
    sleeps: int,
    sleep_seconds: Collection[float],
) -> float | None:
    """Return the seconds that a run still needs; `None` while too little is finished to tell.

    Args:
        episodes: number of unfinished episodes.
        llm_calls: LLM calls of each finished episode.
        s_per_call: seconds of the run for each LLM call. Calls of episodes side by side share them.
        sleeps: number of unfinished sleeps.
        sleep_seconds: durations of finished sleeps.
    """
    if (episodes and len(llm_calls) < FEW) or (sleeps and not sleep_seconds):
        return None
    awake = episodes * fmean(llm_calls) * s_per_call if episodes else 0.0
    return awake + (sleeps * fmean(sleep_seconds) if sleeps else 0.0)
