"""Read many runs in parallel, even if some are damaged."""

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
"""Maximum number of reading processes; each takes a few hundred MiB."""

WORTHWHILE = 8
"""Minimum number of runs for which processes are started."""


def read_results(paths: Sequence[Path], prices: str | None) -> Iterator[RunResult | str]:
    """Yield each run's summary, in order; for a damaged run, the error.

    Args:
        prices: as for `read_result`.

    Raises `StorageError` if a reading process is killed.
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
                f"one of {workers} processes that read runs was killed: is the memory full?"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep the current directory, which may contain runs, off the path of new Python processes."""
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
    gc.disable()  # a run has hundreds of thousands of records without cycles: saves half of the time
    try:
        return read_result(path, prices)
    except DAMAGED as error:
        return damage(path, error)
    finally:
        gc.enable()


def _end_with_parent() -> None:
    """Exit silently with the parent, which handles signals and may end this process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
