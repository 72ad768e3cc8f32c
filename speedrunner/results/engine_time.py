"""The time in which runs used their engines, from their ledgers.

A process uses an engine from the readiness request that it sends first to its last answer. The engine's start
and stop are in no ledger and are not included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf
from operator import attrgetter

from serving.meter import READINESS, LedgerRow
from serving.model_config import ModelConfig


def engine_seconds(runs: Iterable[Sequence[LedgerRow]]) -> float | None:
    """Return the seconds in which at least one of the runs, given by their ledgers, used an engine; the sum
    over engines, each of which a model identifies.

    `None` if no process found an engine ready, as with hosted models.
    """
    spans: dict[str, list[tuple[float, float]]] = {}
    model = attrgetter("model")
    for rows in runs:
        for name, own in groupby(sorted(rows, key=model), key=model):
            for process in _split_by_process(own):
                begins = min(row.time - row.seconds for row in process)
                spans.setdefault(name, []).append((begins, max(row.time for row in process)))
    if not spans:
        return None
    total = 0.0
    for used in spans.values():
        until = -inf
        for begin, end in sorted(used):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
    return total


def gpu_hours(model_config: ModelConfig, seconds: float | None) -> float | None:
    """Return the GPU-hours of an engine's seconds; `None` if they are unknown."""
    gpus = model_config.gpus * model_config.replicas
    return None if seconds is None else seconds * gpus / 3600


def _split_by_process(rows: Iterable[LedgerRow]) -> list[list[LedgerRow]]:
    """Return the rows of one run and one engine, one list for each process that found the engine ready."""
    found: list[list[LedgerRow]] = []
    for row in rows:
        if row.retry == 0 and row.labels.get("role") == READINESS:
            found.append([])
        if found:
            found[-1].append(row)
    return found
