"""A server's log: how it is opened for output, the lines that show a user what happened, and the phases of a
start that it shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

_PREFIX = re.compile(
    r"^(\([\w-]+( pid=\d+)?\)\s*)?"  # (EngineCore pid=123)
    r"((DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+\d\d-\d\d \d\d:\d\d:\d\d\s+)?"
    r"(\[[^\]]+:\d+\]\s?)?"  # [core.py:1415]
)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Failed)(:|$)")
_OTHER = re.compile(r"\berror: |Segmentation fault|Bus error|Illegal instruction|[Oo]ut of memory|\bKilled\b")
_CONSEQUENCE = re.compile(r"root cause|EngineDeadError|EngineCore encountered an issue")
_MOST, _LONGEST = 3, 500
"""Maximum number of informative lines, and of characters in each."""

_TAIL = 1_000_000
"""Bytes at the end of a log that are searched for these lines."""


def new_lines(log: Path, start: int) -> tuple[list[str], int]:
    """Return the complete lines from byte `start` on, and the byte at which the next call starts.

    Each state of a progress bar is a line. The lines have no prefixes and no colours, and none is empty.
    """
    text = _read(log, start)
    end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
    return _clean_lines(text[:end]), start + end


def telling_lines(log: Path, start: int = 0) -> list[str]:
    """Return the lines that name the cause of a failure, first cause first: the ends of tracebacks and
    similar lines. If there are none, return the last lines.

    Args:
        start: byte of the file at which to start.
    """
    lines = _clean_lines(_read(log, start, _TAIL))
    found = [line for line in lines if _EXCEPTION.match(line) or _OTHER.search(line)]
    causes = [line for line in found if not _CONSEQUENCE.search(line)] or found or lines[-_MOST:]
    return [line[:_LONGEST] for line in dict.fromkeys(causes)][:_MOST]


def open_for_appending(log: Path) -> BinaryIO:
    """Open a log for appending; it and its folder are created for their owner alone. Raises `OSError`, also
    for a link."""
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.fdopen(os.open(log, flags, 0o600), "ab")


def _read(log: Path, start: int, most: int | None = None) -> bytes:
    """Return the bytes from `start` on; at most the last `most` of them."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(start if most is None else max(start, size - most))
            return file.read()
    except FileNotFoundError:
        return b""


def _clean_lines(text: bytes) -> list[str]:
    """Return the non-empty lines without prefixes and colours."""
    lines = text.decode("utf-8", errors="replace").splitlines()
    cleaned = (_PREFIX.sub("", _COLOR.sub("", line), count=1).rstrip() for line in lines)
    return [line for line in cleaned if line]


IMPORTING = "importing"

PHASES = {
    "starting the engine": r"Initializing a V1 LLM engine",
    "loading weights": r"Starting to load model|Loading model from scratch|Loading .*checkpoint shards",
    "measuring memory": r"Model loading took|Initial profiling/warmup run took|Estimated CUDA graph",
    "tuning kernels": r"torch\.compile took",  # the model's first run, which tries variants of Triton kernels
    "compiling (torch.compile)": (
        r"Starting torch\.compile|Dynamo bytecode transform|for vLLM's torch\.compile"
        r"|graph.* for compile range|Compile and warming up model|Directly load AOT compilation"
    ),
    "setting up the cache": r"Available KV cache memory|KV cache size:|GiB for KV cache on node",
    "compiling kernels (JIT)": (
        r"Building JIT module|JIT kernel warmup( starting| \()|Compiling CuTeDSL kernels|DeepGEMM warmup"
        r"|Warm(ed|ing) up (?!model|done)|(Running|Using) FlashInfer autotune"
    ),
    "capturing CUDA graphs": r"(Capturing|Profiling) CUDA graph",
    "warming up": r"Graph capturing finished|Warming up model for the compilation",
    "listening": r"init engine \(profile|Starting vLLM server on|Application startup complete",
}
"""Phases of a start after the first, roughly in order, each with a pattern for its first line.

The patterns match what vLLM 0.32 logs on CPUs and GPUs. A phase lasts until a line of another phase appears.
If a phase occurs twice, its seconds add up. Several processes of a model may log at the same time; the newest
line counts.
"""

_BEGINS = [(name, re.compile(pattern)) for name, pattern in PHASES.items()]
_PROGRESS = re.compile(r"(checkpoint shards.*)?\b(\d+)/(\d+) \[")


def list_phases(seconds: Mapping[str, float]) -> str:
    """Return the phases that took a second or more: `importing 9 s, loading weights 4 s`."""
    return ", ".join(f"{name} {spent:.0f} s" for name, spent in seconds.items() if spent >= 1)


class StartPhases:
    """The phases of one start. All times are in seconds since the start."""

    def __init__(self) -> None:
        self._phase = IMPORTING
        self._since = 0.0
        self._detail = ""
        self._spent: dict[str, float] = {}

    def read(self, lines: Iterable[str], now: float) -> None:
        """Process the lines that were logged since the last call."""
        for line in lines:
            phase = next((name for name, pattern in _BEGINS if pattern.search(line)), self._phase)
            if phase != self._phase:
                self._spent = self.seconds(now)
                self._phase, self._since, self._detail = phase, now, ""
            if done := _PROGRESS.search(line):
                self._detail = f" ({'shard ' * bool(done[1])}{done[2]} of {done[3]})"

    def seconds(self, now: float) -> dict[str, float]:
        """Return how long each phase has taken until now, in order of appearance."""
        return self._spent | {self._phase: self._spent.get(self._phase, 0.0) + now - self._since}

    def text(self, now: float) -> str:
        """Return the current phase for users: `loading weights, 300 s (shard 7 of 11)`."""
        return f"{self._phase}, {self.seconds(now)[self._phase]:.0f} s{self._detail}"
