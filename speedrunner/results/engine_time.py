"""Whose an engine's seconds are: one formula, also for an engine that several runs share.

Each second of the engine's life in which requests are in flight is split evenly among those requests; each
second in which nobody waits is split evenly among the runs that were going on. All of it comes from ledgers:
a request is in flight in `[time - seconds, time]`; a run goes on from the readiness request with which each
of its processes begins to that process's last answer. So the shares add up to the time in which any of the
runs went on. What the engine took to start and to stop stands in no ledger and is not in it.
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
        requests: of each row of its ledger, in their order; `None` where that cannot be told.
        idle: by model, of the time in which nobody waited.
    """

    requests: list[float | None]
    idle: dict[str, float]


class EngineUse(msgspec.Struct, frozen=True):
    """When a run used an engine, in Unix seconds: begin, end, begin, end, ...

    Attributes:
        flights: when the engine, or the way to it, had each of its requests.
        going_on: when each of its processes went on.
    """

    flights: array[float]
    going_on: array[float]

    @classmethod
    def of(cls, rows: Sequence[LedgerRow]) -> EngineUse:
        """What the rows of one run and one engine say."""
        flights = array("d", chain.from_iterable(map(_in_flight, rows)))
        return cls(flights, array("d", chain.from_iterable(map(_span, sessions(rows)))))


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
    by_model: dict[str, dict[int, list[int]]] = {}
    for number, rows in enumerate(runs):
        for place, row in enumerate(rows):
            by_model.setdefault(row.model, {}).setdefault(number, []).append(place)
    for model, places in by_model.items():
        uses = [EngineUse.of([runs[number][place] for place in own]) for number, own in places.items()]
        if any(use.flights and not use.going_on for use in uses):
            continue
        for (number, own), (waited, idle) in zip(places.items(), _split(uses), strict=True):
            for place, seconds in zip(own, waited.tolist(), strict=True):
                shares[number].requests[place] = seconds
            shares[number].idle[model] = float(idle.sum())
    return shares


def engine_seconds(uses: Sequence[EngineUse]) -> list[float]:
    """Split the life of one engine among the runs that used it, as `engine_time` does."""
    return [float(waited.sum() + idle.sum()) for waited, idle in _split(uses)]


def _in_flight(row: LedgerRow) -> tuple[float, float]:
    """When the engine, or the way to it, had the request."""
    return row.time - row.seconds, row.time


def _span(rows: Iterable[LedgerRow]) -> tuple[float, float]:
    begins, ends = zip(*map(_in_flight, rows), strict=True)
    return min(begins), max(ends)


def _split(uses: Sequence[EngineUse]) -> list[tuple[ndarray, ndarray]]:
    """Of each run, the seconds of each request, and those of each process in which nobody waited.

    Two clocks go on whenever something begins or ends: one by the seconds that a request gets which is in
    flight, the other by those that a run gets of the time in which nobody waits.
    """
    import numpy

    flights, going_on = (
        [numpy.array(each).reshape(-1, 2) for each in kind]
        for kind in zip(*((use.flights, use.going_on) for use in uses), strict=True)
    )
    moments = numpy.unique(numpy.concatenate([*flights, *going_on]))

    def at_once(spans: Sequence[ndarray]) -> ndarray:
        """How many of them there are from each moment on."""
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
