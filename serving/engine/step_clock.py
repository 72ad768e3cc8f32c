"""Where the engine's process spends the time of a step: a clock around vLLM's own functions.

vLLM 0.32 reports only how long a step waits for the model (`--enable-logging-iteration-details`). The clock
takes microseconds a step. Its file is in the server's folder, for other processes of this user. It sees a
model that computes in the engine's process: on one GPU, or on a CPU.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

_SCHEDULER = ("vllm.v1.core.sched.scheduler", "Scheduler")
_EXECUTOR = "vllm.v1.executor.uniproc_executor"
TIMED = {
    "schedule": (*_SCHEDULER, "schedule"),
    "launch": (_EXECUTOR, "UniProcExecutor", "execute_model"),
    "grammar": (*_SCHEDULER, "get_grammar_bitmask"),
    "sampling": (_EXECUTOR, "UniProcExecutor", "sample_tokens"),
    "waiting": (_EXECUTOR, "AsyncOutputFuture", "result"),
    "output": (*_SCHEDULER, "update_from_output"),
}
"""Parts of a step, with module, class and function. `launch` is the whole computation on a CPU; on a GPU it
prepares and launches it, and `waiting` is the wait for its tokens. `output` also advances the grammars."""

_CELLS = struct.Struct(f"{2 * len(TIMED)}d")
"""Calls and seconds of each part."""


def start_clock() -> None:
    """Time the parts of each step of this process from now on."""
    with Path(tempfile.gettempdir(), f"steps-{os.getpid()}").open("w+b") as file:
        file.truncate(_CELLS.size)
        cells = memoryview(mmap.mmap(file.fileno(), _CELLS.size)).cast("d")
    inner = 0.0  # seconds of parts within the current one

    def timed(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timing(*arguments: Any, **options: Any) -> Any:
            nonlocal inner
            outer, inner, began = inner, 0.0, perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                seconds = perf_counter() - began
                cells[2 * number] += 1
                cells[2 * number + 1] += seconds - inner
                inner = outer + seconds

        return timing

    for number, (module, owner, name) in enumerate(TIMED.values()):
        timed_class = getattr(import_module(module), owner)
        setattr(timed_class, name, timed(number, getattr(timed_class, name)))


def read_clock(folder: Path) -> dict[str, tuple[float, float]]:
    """Return calls and seconds of each part so far, as means over the engines of the server with this folder.

    Empty if it has no clock that has seen a step.
    """
    clocks = [_CELLS.unpack(file.read_bytes()) for file in folder.glob("steps-*")]
    found = [cells for cells in clocks if cells[-2]]  # a model's own process starts one, but makes no output
    means = [sum(values) / len(found) for values in zip(*found, strict=True)]
    return dict(zip(TIMED, zip(means[::2], means[1::2], strict=True), strict=True)) if means else {}
