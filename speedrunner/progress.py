"""Progress for people: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from serving.meter import Meter
from speedrunner.records import Trajectory
from speedrunner.terminal import visible

PLAIN_EVERY_S = 15.0
"""Time between two plain lines of one step, or of one wait."""


class Progress:
    """Shows how a run gets on: episodes, turns/s, tokens/s, cache share, spend, time left.

    A context manager, inside which its line is alive.

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
        self._of = self._done = 0
        self._endings: Counter[str] = Counter()
        self._told = 0.0
        self._waiting = ""
        self._live = Live(console=console, get_renderable=self._text, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, meter: Meter) -> None:
        """Start counting time and tokens: the engine is ready."""
        self._meter, self._began, self._waiting = meter, time.monotonic(), ""

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._told = time.monotonic()
        self._console.print(Text(visible(line)), soft_wrap=True)

    def waiting(self, line: str) -> None:
        """Show a line about what is being waited for."""
        self._waiting = line
        self._say_now_and_then(line)

    @contextmanager
    def step(self, name: str, of: int, done: int) -> Iterator[None]:
        """Show one step of the plan while it lasts: `done` of its `of` parts are finished."""
        self._step, self._of, self._done, self._waiting = name, of, done, ""
        yield
        self._done = of
        self.say(self._line())

    def episode(self, trajectory: Trajectory) -> None:
        """Count a finished episode."""
        self._finished += 1
        self._done += 1
        self._endings[str(trajectory.ending)] += 1
        self._say_now_and_then(self._line())

    def _say_now_and_then(self, line: str) -> None:
        if not self._console.is_terminal and time.monotonic() - self._told >= PLAIN_EVERY_S:
            self.say(line)

    def _text(self) -> Text:
        return Text(visible(self._waiting or self._line()), overflow="ellipsis", no_wrap=True)

    def _line(self) -> str:
        seconds = max(time.monotonic() - self._began, 1e-9)
        parts = [f"{self._step} {self._done}/{self._of}", f"episodes {self._finished}/{self._total}"]
        if self._endings:
            parts.append(", ".join(f"{count} {ending}" for ending, count in self._endings.most_common()))
        if self._meter is not None:
            total = self._meter.total
            share = total.cached / total.prompt if total.prompt else 0.0
            parts += [
                f"{self._meter.requests / seconds:.1f} turns/s",
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
