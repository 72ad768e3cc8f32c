"""A log of an engine's steps: what decided how long each one took.

The engine's process writes it (`serving.engine.convoy`) if a benchmark asks for it, and benchmarks read it.
A row is written when the output of a step is processed. While the engine is busy, its time minus that of the
row before is the duration of a step.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

FILE = "steps"
"""The log's name in the server's folder."""

GRAPH_MODES = ("unknown", "none", "piecewise", "full")
"""How a step used CUDA graphs; `unknown` if vLLM does not report it."""

_ROW = struct.Struct("=dIIIB")


class LoggedStep(msgspec.Struct, frozen=True):
    """One step of an engine.

    Attributes:
        time_s: monotonic time at its end.
        requests: number of requests that ran in it.
        prefill_tokens: tokens computed beyond one for each request; 0 in a step that only decodes.
        waiting: number of requests that had not started.
        graph_mode: one of `GRAPH_MODES`.
    """

    time_s: float
    requests: int
    prefill_tokens: int
    waiting: int
    graph_mode: str

    @property
    def only_decodes(self) -> bool:
        """Whether each of its requests computed one token."""
        return self.prefill_tokens == 0


class StepLog:
    """The log as the engine's process writes it."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)

    def write(self, tokens: Iterable[int], waiting: int, graph_mode: str | None) -> None:
        """Add a step.

        Args:
            tokens: number of tokens that each of its requests computed.
            graph_mode: the name of vLLM's mode; `None` if it is not reported.
        """
        counts = list(tokens)
        mode = (graph_mode or "unknown").lower()
        number = GRAPH_MODES.index(mode) if mode in GRAPH_MODES else 0
        row = _ROW.pack(time.monotonic(), len(counts), sum(counts) - len(counts), waiting, number)
        self._file.write(row)


def read_steps(file: Path, start: int = 0) -> list[LoggedStep]:
    """Return the steps in a log from row `start` on; empty if there is no log."""
    return list(_steps(file.read_bytes()[start * _ROW.size :])) if file.exists() else []


def _steps(data: bytes) -> Iterator[LoggedStep]:
    whole = len(data) - len(data) % _ROW.size  # the last row may be incomplete
    for time_s, requests, prefill_tokens, waiting, mode in _ROW.iter_unpack(data[:whole]):
        yield LoggedStep(time_s, requests, prefill_tokens, waiting, GRAPH_MODES[mode])
