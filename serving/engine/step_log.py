"""A log of an engine's steps: what decided how long each one took.

The engine's process writes it (`serving.engine.convoy`) if a benchmark asks for it, and benchmarks read it.
A row is written when the output of a step is processed. While the engine is busy, its time minus that of the
row before is the duration of a step.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec


class LoggedStep(msgspec.Struct, frozen=True):
    """One step of an engine.

    Attributes:
        time_s: monotonic time at its end.
        requests: number of requests that ran in it.
        prefill_tokens: tokens computed beyond one for each request; 0 in a step that only decodes.
        waiting: number of requests that had not started.
        graph_mode: how it used CUDA graphs: `none`, `piecewise`, `full`; `unknown` if vLLM does not say.
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


def log_step(file: BinaryIO, tokens: Iterable[int], waiting: int, graph_mode: str | None) -> None:
    """Add a step to a log.

    Args:
        tokens: number of tokens that each of its requests computed.
        graph_mode: the name of vLLM's mode; `None` if it is not reported.
    """
    counts = list(tokens)
    prefill_tokens = sum(counts) - len(counts)
    step = LoggedStep(
        time.monotonic(), len(counts), prefill_tokens, waiting, (graph_mode or "unknown").lower()
    )
    file.write(msgspec.json.encode(step) + b"\n")


def read_steps(file: Path, start: int = 0) -> list[LoggedStep]:
    """Return the steps in a log from row `start` on; empty if there is no log."""
    rows, _, _ = (file.read_bytes() if file.exists() else b"").rpartition(b"\n")  # the last may be incomplete
    return msgspec.json.Decoder(LoggedStep).decode_lines(rows)[start:]
