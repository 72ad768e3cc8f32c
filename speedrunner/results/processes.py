"""Work divided among forked processes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from speedrunner.store.files import StorageError

PROCESSES = 4
"""Maximum number of processes. One that reads runs takes a few hundred MiB, and up to some 3 GiB for a run
that reaches all limits of `store.run_data`."""

Given = TypeVar("Given")
Made = TypeVar("Made")


def divide(work: Callable[[Given], Made], given: Sequence[Given]) -> Iterator[Made]:
    """Yield the result for each item, in order. Raises `StorageError` if one of the processes is killed."""
    count = min(PROCESSES, os.cpu_count() or 1, len(given))
    if count < 2:
        yield from map(work, given)
        return
    with ProcessPoolExecutor(count, get_context("fork"), _end_with_parent) as pool:
        try:
            yield from pool.map(work, given)
        except BrokenProcessPool:
            raise StorageError(
                f"one of {count} processes that read runs or draw figures was killed: is the memory full?"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Exit silently with the parent, which handles signals and may end this process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # not those of a progress line of the parent
    parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
