"""The phases of a server's start, from the lines of its log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
