"""Show progress: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from serving.meter import Meter
from speedrunner.plain.console import describe_seconds, visible
from speedrunner.store.records import Trajectory

PLAIN_EVERY_S = 15.0
"""Seconds between two plain lines about work that goes on, or one wait."""

FEW = 3
"""Minimum number of finished episodes for an estimate of the remaining time."""


@dataclass
class Ticks:
    """The monotonic time of the last plain line, which the runs on one terminal share."""

    last_s: float = 0.0


class Progress:
    """Shows the progress of a run: episodes, turns/s, tokens/s, share of cached tokens, cost, remaining time.

    Use it as a context manager; its line is live inside.

    Args:
        total: episodes of the whole plan.
        finished: the number that an earlier process finished.
        name: prefix of each line. With a name, no line is live, since several runs share the terminal.
        ticks: shared with these runs, of which one prints a line now and then.
    """

    def __init__(
        self, console: Console, total: int, finished: int, name: str = "", ticks: Ticks | None = None
    ) -> None:
        self._console = console
        self._lead = f"{name}: " if name else ""
        self._is_live = console.is_terminal and not name
        self._queued: Callable[[], int] = lambda: 0
        self._total = total
        self._finished = finished
        self._played = 0  # episodes of this process
        self._meter: Meter | None = None
        self._began = time.monotonic()
        self._steps: dict[str, tuple[int, int]] = {}  # finished parts, total parts
        self._terminations: Counter[str] = Counter()
        self._ticks = ticks or Ticks()
        self._waiting = ""
        self._live = Live(console=console, get_renderable=self.text, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, meter: Meter, queued: Callable[[], int] = lambda: 0) -> None:
        """Start counting time and tokens; the engine is ready.

        Args:
            queued: returns the number of episodes that wait for room in the prefix cache.
        """
        self._meter, self._queued = meter, queued
        self._began, self._waiting = time.monotonic(), ""

    def say(self, line: str) -> None:
        """Print a permanent line."""
        self._ticks.last_s, self._waiting = time.monotonic(), ""
        self._console.print(Text(visible(self._lead + line)), soft_wrap=True)

    def waiting(self, line: str) -> None:
        """Show what the run is waiting for, until the next permanent line."""
        self._say_now_and_then(line)
        self._waiting = line

    @contextmanager
    def step(self, name: str, of: int, done: int) -> Iterator[None]:
        """Show one step of the plan while it lasts: `done` of its `of` parts are finished. A sleep has turns,
        whose number is unknown: `of` is 0."""
        self._steps[name], self._waiting = (done, of), ""
        try:
            yield
            if of:
                self.say(self._line())
        finally:
            del self._steps[name]

    def episode(self, step: str, trajectory: Trajectory) -> None:
        """Count a finished episode of a step."""
        self._finished += 1
        self._played += 1
        done, of = self._steps[step]
        self._steps[step] = (done + 1, of)
        self._terminations[str(trajectory.termination)] += 1
        self._say_now_and_then(self._line())

    def turn(self, step: str) -> None:
        """Count a turn of a sleep."""
        self._steps[step] = (self._steps[step][0] + 1, 0)
        self._say_now_and_then(self._line())

    def _say_now_and_then(self, line: str) -> None:
        if not self._is_live and time.monotonic() - self._ticks.last_s >= PLAIN_EVERY_S:
            self.say(line)

    def text(self) -> Text:
        """Return the state of the run in a line."""
        return Text(visible(self._waiting or self._line()))

    def _line(self) -> str:
        seconds = max(time.monotonic() - self._began, 1e-9)
        steps = ", ".join(
            f"{name} {done}/{of}" if of else f"{name} turn {done}" for name, (done, of) in self._steps.items()
        )
        parts = [*([steps] if steps else []), f"episodes {self._finished}/{self._total}"]
        if self._terminations:
            parts.append(
                ", ".join(f"{count} {termination}" for termination, count in self._terminations.most_common())
            )
        if self._meter is not None:
            total = self._meter.total
            share = total.cached / total.prompt if total.prompt else 0.0
            parts += [
                f"{self._meter.requests / seconds:.1f} turns/s",
                f"{total.completion / seconds:.0f} output tokens/s",
                f"{share:.0%} of prompt tokens cached",
            ]
            if self._meter.spent_usd:  # 0 says only that the model has no price
                parts.append(f"{self._meter.spent_usd:.4f} USD")
        if queued := self._queued():
            parts.append(f"{queued} queued for room in the cache")
        left_s = seconds / max(self._played, 1) * (self._total - self._finished)  # at this process's pace
        if self._played >= FEW and left_s >= 1:
            parts.append(f"{describe_seconds(left_s)} left")
        return " · ".join(parts)
