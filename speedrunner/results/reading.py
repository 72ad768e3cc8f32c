"""Many runs, read side by side and damaged or not."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from speedrunner.results.run_result import RunResult, read_result
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.files import StorageError

WORKERS = 4
"""Processes that read at the same time, at most: each takes a few hundred MiB."""

WORTHWHILE = 8
"""Runs from which on it is worth starting them."""


def read_results(paths: Sequence[Path], prices: str | None) -> Iterator[RunResult | str]:
    """Each run's summary, in their order; of a damaged one, what is wrong with it.

    Args:
        prices: as for `read_result`.

    Raises `StorageError` where a process that reads is killed.
    """
    read = partial(_read, prices=prices)
    workers = min(WORKERS, os.cpu_count() or 1)
    if len(paths) < WORTHWHILE or workers == 1:
        yield from map(read, paths)
        return
    with (
        _safe_path(),
        ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool,
    ):
        try:
            yield from pool.map(read, paths)
        except BrokenProcessPool:
            raise StorageError(
                f"one of {workers} processes that read runs was killed: is memory short?"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep the current directory, where runs may lie, off the path of Python processes that start."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _read(path: Path, prices: str | None) -> RunResult | str:
    gc.disable()  # a run's records are hundreds of thousands, and in no circles: half of the time
    try:
        return read_result(path, prices)
    except DAMAGED as error:
        return damage(path, error)
    finally:
        gc.enable()


def _end_with_parent() -> None:
    """At once and without a word: signals are answered by the process that waits, and may end it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
