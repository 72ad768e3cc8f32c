"""Read many runs in parallel, even if some are damaged."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from speedrunner.results.processes import divide
from speedrunner.results.run_result import RunResult, read_result
from speedrunner.store.discovery import DAMAGED, damage

WORTHWHILE = 8
"""Minimum number of runs for which processes are started."""


def read_results(paths: Sequence[Path], prices: str | None) -> Iterator[RunResult | str]:
    """Yield each run's summary, in order; for a damaged run, the error.

    Args:
        prices: as for `read_result`.

    Raises `StorageError` if a reading process is killed.
    """
    return divide(partial(_read, prices=prices), paths, least=WORTHWHILE)


def _read(path: Path, prices: str | None) -> RunResult | str:
    gc.disable()  # a run has hundreds of thousands of records without cycles: saves half of the time
    try:
        return read_result(path, prices)
    except DAMAGED as error:
        return damage(path, error)
    finally:
        gc.enable()
