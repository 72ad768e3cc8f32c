"""Estimate the time that a run still needs, from the pace of its recent episodes and sleeps."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

RECENT = 30
"""Number of last parts of a kind that determine its pace; episodes change while a run learns."""

ENOUGH = {"wake": 10, "evaluate": 10, "sleep": 1}
"""Parts of each kind that must be finished before its pace counts. Episodes run side by side, so the first
ones to finish say little.
"""

SIMILAR = {"wake": "evaluate", "evaluate": "wake"}
"""The kind whose pace is used until a kind has its own."""


MOST = 4.0
"""Largest duration that counts, as a multiple of the median. A longer part is an exception, such as the first
episode after the start of an engine.
"""


class Part(NamedTuple):
    """A finished part: its end in attributed seconds of its kind, and its own duration in seconds."""

    end: float
    seconds: float


class TimeLeft:
    """Measures the pace of each kind of work, and estimates the time for the rest.

    Each second counts for the kinds that are in progress at that moment, in equal shares. So steps that run
    side by side are not counted twice.

    Args:
        left: number of unfinished parts by kind: episodes of `wake` and `evaluate`, and `sleep`.
        now: the current time in monotonic seconds, as for all methods.
    """

    def __init__(self, left: Mapping[str, int], now: float) -> None:
        self._left = Counter(left)
        self._running = Counter[str]()
        self._seconds = defaultdict[str, float](float)  # attributed to each kind so far
        self._last = now
        self._parts = {kind: deque[Part](maxlen=RECENT + 1) for kind in ENOUGH}
        """By kind, its recent parts. The first one is only the start of the others."""

    def start(self, kind: str, now: float) -> None:
        """Note that a step of this kind starts."""
        self._advance(now)
        self._running[kind] += 1
        if not self._parts[kind]:
            self._parts[kind].append(Part(self._seconds[kind], 0.0))

    def end(self, kind: str, now: float) -> None:
        """Note that a step of this kind ended."""
        self._advance(now)
        self._running[kind] -= 1

    def finish(self, kind: str, seconds: float, now: float) -> None:
        """Note that one part of this kind is finished, which took `seconds`."""
        self._advance(now)
        self._left[kind] -= 1
        self._parts[kind].append(Part(self._seconds[kind], seconds))

    def estimate(self, now: float) -> float | None:
        """Return the seconds that the rest will take; `None` while too little is finished to tell."""
        self._advance(now)
        total = 0.0
        for kind, count in self._left.items():
            if count <= 0:
                continue
            pace = self._pace(kind)
            if pace is None and kind in SIMILAR:
                pace = self._pace(SIMILAR[kind])
            if pace is None:
                return None
            total += count * pace
        return total

    def _pace(self, kind: str) -> float | None:
        """Return the seconds of a part; `None` while too few are finished."""
        first, *parts = self._parts[kind] or [Part(0.0, 0.0)]
        if len(parts) < ENOUGH[kind]:
            return None
        durations = [part.seconds for part in parts]
        most = MOST * median(durations)
        usual = sum(min(each, most) for each in durations) / (sum(durations) or 1.0)
        return (parts[-1].end - first.end) / len(parts) * usual

    def _advance(self, now: float) -> None:
        running = [kind for kind, steps in self._running.items() if steps > 0]
        for kind in running:
            self._seconds[kind] += (now - self._last) / len(running)
        self._last = now
