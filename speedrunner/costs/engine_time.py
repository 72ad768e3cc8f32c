"""Whose an engine's seconds are: one formula, also for an engine that several runs share.

Each second of the engine's life in which requests are in flight is split evenly among those requests; each
second in which nobody waits is split evenly among the runs that were going on. All of it comes from ledgers:
a request is in flight in `[time - seconds, time]`; a run goes on from the readiness request with which each
of its processes begins to that process's last answer. So the shares add up to the time in which any of the
runs went on. What the engine took to start and to stop stands in no ledger and is not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from serving.meter import READINESS, LedgerRow

Interval = tuple[float, float]
"""Begin and end, in Unix seconds."""


@dataclass(frozen=True)
class EngineTime:
    """One run's share of the engines that it used, in seconds.

    Attributes:
        requests: of each row of its ledger, in their order; `None` where that cannot be told.
        idle: by model, of the time in which nobody waited.
    """

    requests: list[float | None]
    idle: dict[str, float]


def sessions(rows: Iterable[LedgerRow]) -> list[list[LedgerRow]]:
    """The rows of one run and one engine, one list for each process that used it.

    Empty where no process showed the engine to be ready, as with a hosted model, whose time is not ours.
    """
    found: list[list[LedgerRow]] = []
    for row in rows:
        if row.retry == 0 and row.labels.get("role") == READINESS:
            found.append([])
        if found:
            found[-1].append(row)
    return found


def engine_time(runs: Sequence[Sequence[LedgerRow]]) -> list[EngineTime]:
    """Split the lives of engines among the runs whose ledgers these are. An engine is known by its model."""
    shares = [EngineTime([None] * len(rows), {}) for rows in runs]
    for model in dict.fromkeys(row.model for row in chain(*runs)):
        places = [[place for place, row in enumerate(rows) if row.model == model] for rows in runs]
        processes = [sessions(rows[place] for place in own) for rows, own in zip(runs, places, strict=True)]
        if not all(found for found, own in zip(processes, places, strict=True) if own):
            continue
        going_on = [[_span(process) for process in found] for found in processes]
        flights = [[_in_flight(rows[place]) for place in own] for rows, own in zip(runs, places, strict=True)]
        waited, idle = _clocks(chain(*flights), chain(*going_on))
        for share, own, mine, spans in zip(shares, places, flights, going_on, strict=True):
            for place, (begin, end) in zip(own, mine, strict=True):
                share.requests[place] = waited[end] - waited[begin]
            if own:
                share.idle[model] = sum(idle[end] - idle[begin] for begin, end in spans)
    return shares


def _in_flight(row: LedgerRow) -> Interval:
    """When the engine, or the way to it, had the request."""
    return row.time - row.seconds, row.time


def _span(rows: list[LedgerRow]) -> Interval:
    begins, ends = zip(*map(_in_flight, rows), strict=True)
    return min(begins), max(ends)


def _clocks(
    flights: Iterable[Interval], going_on: Iterable[Interval]
) -> tuple[dict[float, float], dict[float, float]]:
    """Two clocks, read whenever something begins or ends.

    One tells the seconds that a request has got which has been in flight from the start, the other those
    that a run has got of the time in which nobody waited.
    """
    waiting, running = _steps(flights), _steps(going_on)
    moments = sorted({*waiting, *running})
    waited, idle = {moments[0]: 0.0}, {moments[0]: 0.0}
    requests, runs = 0, 0
    for begin, end in pairwise(moments):
        requests += waiting[begin]
        runs += running[begin]
        waited[end] = waited[begin] + ((end - begin) / requests if requests else 0.0)
        idle[end] = idle[begin] + ((end - begin) / runs if runs and not requests else 0.0)
    return waited, idle


def _steps(intervals: Iterable[Interval]) -> Counter[float]:
    """By how many more (or fewer) of them there are from each moment on."""
    steps: Counter[float] = Counter()
    for begin, end in intervals:
        steps[begin] += 1
        steps[end] -= 1
    return steps
