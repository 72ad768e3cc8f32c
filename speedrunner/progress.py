"""Progress for people: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from serving.meter import Meter
from speedrunner.records import Trajectory

PLAIN_EVERY_S = 15.0
"""Time between two plain lines of one step."""


class Progress:
    """Shows how a run gets on: episodes, turns/s, tokens/s, cache share, spend, time left.

    Args:
        total: episodes of the whole plan.
        finished: those of them that an earlier process finished.
    """

    def __init__(self, console: Console, total: int, finished: int) -> None:
        self._console = console
        self._total = total
        self._finished = finished
        self._before = finished
        self._meter: Meter | None = None
        self._began = time.monotonic()
        self._step = ""
        self._of = self._done = self._turns = 0
        self._endings: Counter[str] = Counter()
        self._told = 0.0

    def begin(self, meter: Meter) -> None:
        """Start counting time and tokens: the engine is ready."""
        self._meter, self._began = meter, time.monotonic()

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(Text(line), soft_wrap=True)

    @contextmanager
    def step(self, name: str, of: int, done: int) -> Iterator[None]:
        """Show one step of the plan while it lasts."""
        self._step, self._of, self._done = name, of, done
        self._told = time.monotonic()
        if not self._console.is_terminal:
            yield
            self.say(self._line())
            return
        live = Live(console=self._console, get_renderable=self._text, refresh_per_second=4, transient=True)
        with live:
            yield
        self.say(self._line())

    def episode(self, trajectory: Trajectory) -> None:
        """Count a finished episode."""
        self._finished += 1
        self._done += 1
        self._turns += len(trajectory.turns)
        self._endings[str(trajectory.ending)] += 1
        if not self._console.is_terminal and time.monotonic() - self._told >= PLAIN_EVERY_S:
            self._told = time.monotonic()
            self.say(self._line())

    def _text(self) -> Text:
        return Text(self._line(), overflow="ellipsis", no_wrap=True)

    def _line(self) -> str:
        seconds = max(time.monotonic() - self._began, 1e-9)
        parts = [f"{self._step} {self._done}/{self._of}", f"episodes {self._finished}/{self._total}"]
        if self._endings:
            parts.append(", ".join(f"{count} {ending}" for ending, count in self._endings.most_common()))
        if self._meter is not None:
            total = self._meter.total
            share = total.cached / total.prompt if total.prompt else 0.0
            parts += [
                f"{self._turns / seconds:.1f} turns/s",
                f"{total.completion / seconds:.0f} output tokens/s",
                f"{share:.0%} of prompt tokens cached",
                f"{self._meter.spent_usd:.4f} USD",
            ]
        new = self._finished - self._before
        if new and self._finished < self._total:
            parts.append(f"{_duration((self._total - self._finished) * seconds / new)} left")
        return " · ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
