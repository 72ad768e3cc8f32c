"""Whose an engine's seconds are: one formula, also for an engine that several runs share.

Each second of the engine's life in which requests are in flight is split evenly among those requests; each
second in which nobody waits is split evenly among the runs that were going on. All of it comes from ledgers:
a request is in flight in `[time - seconds, time]`; a run goes on from the readiness request with which each
of its processes begins to that process's last answer. So the shares add up to the time in which any of the
runs went on. What the engine took to start and to stop stands in no ledger and is not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from serving.meter import LedgerRow
from speedrunner.store.labels import Labels

READINESS = "readiness"
"""Role of the request with which a process of a run begins to use an engine."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Some time, in Unix seconds."""

    begin: float
    end: float


@dataclass(frozen=True)
class EngineTime:
    """One run's share of an engine, in seconds.

    Attributes:
        requests: of each row of its ledger, in their order.
        idle: of the time in which nobody waited.
    """

    requests: list[float]
    idle: float

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self.requests) + self.idle


def in_flight(row: LedgerRow) -> Interval:
    """When the engine, or the way to it, had the request."""
    return Interval(row.time - row.seconds, row.time)


def sessions(rows: Sequence[LedgerRow]) -> list[list[LedgerRow]]:
    """The rows of one run and one engine, one list for each process that used it.

    Empty where no process showed the engine to be ready, as with a hosted model, whose time is not ours.
    """
    found: list[list[LedgerRow]] = []
    for row in rows:
        if Labels.of(row.labels).role == READINESS and row.retry == 0:
            found.append([])
        if found:
            found[-1].append(row)
    return found


def engine_time(runs: Sequence[Sequence[LedgerRow]]) -> list[EngineTime] | None:
    """Split the life of one engine among the runs that shared it.

    Args:
        runs: their ledgers' rows of that engine.

    Returns:
        One share per run; `None` where that cannot be told (see `sessions`).
    """
    processes = [sessions(rows) for rows in runs]
    if not all(processes):
        return None
    going_on = [[_span(process) for process in each] for each in processes]
    flights = [[in_flight(row) for row in rows] for rows in runs]
    waited, idle = _clocks(list(chain(*flights)), list(chain(*going_on)))
    return [
        EngineTime(
            requests=[waited[flight.end] - waited[flight.begin] for flight in flights[number]],
            idle=sum(idle[span.end] - idle[span.begin] for span in going_on[number]),
        )
        for number in range(len(runs))
    ]


def _span(rows: list[LedgerRow]) -> Interval:
    times = [in_flight(row) for row in rows]
    return Interval(min(each.begin for each in times), max(each.end for each in times))


def _clocks(
    flights: list[Interval], going_on: list[Interval]
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


def _steps(intervals: list[Interval]) -> Counter[float]:
    """By how many more (or fewer) of them there are from each moment on."""
    steps: Counter[float] = Counter()
    for each in intervals:
        steps[each.begin] += 1
        steps[each.end] -= 1
    return steps
