"""Attribute an engine's seconds to requests and runs.

A second with requests in flight is split evenly among those requests. A second without requests is split
evenly among the active runs. All times come from ledgers: a request is in flight in `[time - seconds, time]`.
A run is active from the readiness request that each of its processes sends first to that process's last
answer. The shares therefore add up to the time in which at least one run was active. The engine's start and
stop are in no ledger and are not included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
        for (number, own), (waited, idle) in zip(places.items(), _split(used), strict=True):
            for place, seconds in zip(own, waited.tolist(), strict=True):
                shares[number].requests[place] = seconds
            shares[number].idle[model] = float(idle.sum())
    return shares


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


def _split(runs: Sequence[Sequence[LedgerRow]]) -> list[tuple[ndarray, ndarray]]:
    """Return, for each run, the seconds of each request and the idle seconds of each process.

    Two running sums advance at each start or end: the seconds of a request in flight, and a run's share of
    the time without requests.
    """
    import numpy

    flights = [numpy.array([(row.time - row.seconds, row.time) for row in rows]) for rows in runs]
    active = [
        numpy.array(
            [
                (min(row.time - row.seconds for row in own), max(row.time for row in own))
                for own in sessions(rows)
            ]
        )
        for rows in runs
    ]
    moments = numpy.unique(numpy.concatenate([*flights, *active]))

    def count_concurrent(spans: Sequence[ndarray]) -> ndarray:
        """Return the number of concurrent spans after each event."""
        begins, ends = numpy.searchsorted(moments, numpy.concatenate(spans)).T
        steps = numpy.bincount(begins, minlength=len(moments)) - numpy.bincount(ends, minlength=len(moments))
        return steps.cumsum()[:-1]

    def share(passed: ndarray, among: ndarray, spans: Sequence[ndarray]) -> list[ndarray]:
        """Return the seconds of each span, if the passed seconds are split among the concurrent ones."""
        shares = numpy.where(among, passed / numpy.maximum(among, 1), 0.0)
        clock = numpy.concatenate([[0.0], numpy.cumsum(shares)])
        places = [numpy.searchsorted(moments, own).T for own in spans]
        return [clock[ends] - clock[begins] for begins, ends in places]

    passed, requests = numpy.diff(moments), count_concurrent(flights)
    idle = numpy.where(requests, 0.0, passed)
    waited = share(passed, requests, flights)
    return list(zip(waited, share(idle, count_concurrent(active), active), strict=True))
