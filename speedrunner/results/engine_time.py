"""Attribute an engine's seconds to requests and runs, also if several runs share the engine.

A second with requests in flight is split evenly among those requests. A second without requests is split
evenly among the active runs. All times come from ledgers: a request is in flight in `[time - seconds, time]`.
A run is active from the readiness request that each of its processes sends first to that process's last
answer. The shares therefore add up to the time in which at least one run was active. The engine's start and
stop are in no ledger and are not included.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from serving.meter import READINESS, LedgerRow

if TYPE_CHECKING:
    from numpy import ndarray


@dataclass(frozen=True)
class EngineTime:
    """One run's share of the engines that it used, in seconds.

    Attributes:
        requests: the share of each row of its ledger, in order; `None` if unknown.
        idle: by model, the share of the time without requests.
    """

    requests: list[float | None]
    idle: dict[str, float]


class EngineUse(msgspec.Struct, frozen=True):
    """When a run used an engine, in Unix seconds: start, end, start, end, ...

    Attributes:
        flights: when each of its requests was in flight.
        going_on: when each of its processes was active.
    """

    flights: array[float]
    going_on: array[float]

    @classmethod
    def of(cls, rows: Sequence[LedgerRow]) -> EngineUse:
        """Return the use in the rows of one run and one engine."""
        flights = array("d", chain.from_iterable(map(_in_flight, rows)))
        return cls(flights, array("d", chain.from_iterable(map(_span, sessions(rows)))))


def sessions(rows: Iterable[LedgerRow]) -> list[list[LedgerRow]]:
    """Return the rows of one run and one engine, one list for each process that used it.

    Empty if no process found the engine ready, as with hosted models, which have no engine time.
    """
    found: list[list[LedgerRow]] = []
    for row in rows:
        if row.retry == 0 and row.labels.get("role") == READINESS:
            found.append([])
        if found:
            found[-1].append(row)
    return found


def engine_time(runs: Sequence[Sequence[LedgerRow]]) -> list[EngineTime]:
    """Split the lifetimes of engines among runs, given by their ledgers. A model identifies its engine."""
    shares = [EngineTime([None] * len(rows), {}) for rows in runs]
    by_model: dict[str, dict[int, list[int]]] = {}
    for number, rows in enumerate(runs):
        for place, row in enumerate(rows):
            by_model.setdefault(row.model, {}).setdefault(number, []).append(place)
    for model, places in by_model.items():
        used = [[runs[number][place] for place in own] for number, own in places.items()]
        if not all(map(sessions, used)):
            continue
        split = _split([*map(EngineUse.of, used)])
        for (number, own), (waited, idle) in zip(places.items(), split, strict=True):
            for place, seconds in zip(own, waited.tolist(), strict=True):
                shares[number].requests[place] = seconds
            shares[number].idle[model] = float(idle.sum())
    return shares


def engine_seconds(uses: Sequence[EngineUse]) -> list[float]:
    """Split the lifetime of one engine among the runs that used it, as `engine_time` does."""
    return [float(waited.sum() + idle.sum()) for waited, idle in _split(uses)]


def _in_flight(row: LedgerRow) -> tuple[float, float]:
    """Return when the request was in flight, including the way to the engine."""
    return row.time - row.seconds, row.time


def _span(rows: Iterable[LedgerRow]) -> tuple[float, float]:
    begins, ends = zip(*map(_in_flight, rows), strict=True)
    return min(begins), max(ends)


def _split(uses: Sequence[EngineUse]) -> list[tuple[ndarray, ndarray]]:
    """Return, for each run, the seconds of each request and the idle seconds of each process.

    Two running sums advance at each start or end: the seconds of a request in flight, and a run's share of
    the time without requests.
    """
    import numpy

    flights, going_on = (
        [numpy.array(each).reshape(-1, 2) for each in kind]
        for kind in zip(*((use.flights, use.going_on) for use in uses), strict=True)
    )
    moments = numpy.unique(numpy.concatenate([*flights, *going_on]))

    def at_once(spans: Sequence[ndarray]) -> ndarray:
        """Return the number of concurrent spans after each event."""
        begins, ends = numpy.searchsorted(moments, numpy.concatenate(spans)).T
        steps = numpy.bincount(begins, minlength=len(moments)) - numpy.bincount(ends, minlength=len(moments))
        return steps.cumsum()[:-1]

    def clock(passed: ndarray, among: ndarray) -> ndarray:
        shares = numpy.where(among, passed / numpy.maximum(among, 1), 0.0)
        return numpy.concatenate([[0.0], numpy.cumsum(shares)])

    def read(clock: ndarray, spans: ndarray) -> ndarray:
        begins, ends = numpy.searchsorted(moments, spans).T
        seconds: ndarray = clock[ends] - clock[begins]
        return seconds

    passed, requests = numpy.diff(moments), at_once(flights)
    waited = clock(passed, requests)
    idle = clock(numpy.where(requests, 0.0, passed), at_once(going_on))
    return [(read(waited, own), read(idle, spans)) for own, spans in zip(flights, going_on, strict=True)]
