"""Compare a ledger's sums with those that a run's processes stored in their reconciliations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from serving.meter import LedgerRow
from serving.reconciliation import Reconciliation
from serving.usage import Counters, Usage
from speedrunner.results.engine_time import sessions
from speedrunner.store.run_data import RunData


class StoredReconciliation(msgspec.Struct, frozen=True):
    """One stored reconciliation compared with its ledgers.

    Attributes:
        ledger: sums of the rows of its process (for a sweep: of all given runs).
        stored: the same sums, as stored by the process.
        equal: whether they are the same.
        engine: differences of the engine's counters.
        agrees: whether the process found that ledger and engine agree.
        time: in Unix seconds.
    """

    ledger: Counters
    stored: Counters
    equal: bool
    engine: Counters
    agrees: bool
    time: float


class StoredReconciliations(msgspec.Struct, frozen=True):
    """All stored reconciliations of some runs.

    Attributes:
        equal: whether all of them match the ledgers; `None` if none was stored.
        without: uses of an engine without a stored reconciliation, by killed processes and a running one.
        reconciliations: one for each process and each engine that it used: at its end or, if it was killed,
            the last interim one with the ledger of that time.
    """

    equal: bool | None
    without: int
    reconciliations: list[StoredReconciliation]


def stored_reconciliations(runs: Sequence[RunData]) -> StoredReconciliations:
    """Compare the ledgers of runs that shared their engines, or of one run, with the stored
    reconciliations."""
    found: dict[Reconciliation, list[LedgerRow]] = {}
    passing: dict[tuple[str, float], Reconciliation] = {}
    for each in sorted((each for run in runs for each in run.reconciliations), key=lambda each: each.time):
        passing[server_of(each)] = each
    without = 0
    for run in runs:
        for process, own in with_reconciliations(run):
            if own is None:
                without += 1
            else:
                # A sweep stores one reconciliation in all its runs, unless a kill intervenes; after a restart
                # it covers the time since then.
                own = passing[server_of(own)] if own.in_passing else own
                covered = (row for row in process if own.since <= row.time <= own.time)
                found.setdefault(own, []).extend(covered)
    reconciliations = []
    for reconciliation, rows in found.items():
        ledger = Counters.of(sum((row.usage or Usage() for row in rows), Usage()))
        stored = reconciliation.ledger
        reconciliations.append(
            StoredReconciliation(
                ledger,
                stored,
                ledger == stored,
                reconciliation.engine,
                reconciliation.agrees,
                reconciliation.time,
            )
        )
    return StoredReconciliations(
        all(each.equal for each in reconciliations) if reconciliations else None, without, reconciliations
    )


def with_reconciliations(run: RunData) -> Iterator[tuple[list[LedgerRow], Reconciliation | None]]:
    """Yield the rows of each process of a run and each engine that it used, with its reconciliation."""
    by_model: dict[str, list[LedgerRow]] = {}
    for row in run.requests:
        by_model.setdefault(row.model, []).append(row)
    reconciliations: dict[str, list[Reconciliation]] = {}
    for reconciliation in sorted(run.reconciliations, key=lambda each: each.time):
        reconciliations.setdefault(reconciliation.model, []).append(reconciliation)
    for model, rows in by_model.items():
        processes, left = sessions(rows), reconciliations.get(model, [])
        times = [each.time for each in left]
        for process, following in pairwise([*processes, []]):
            # Its reconciliation is the first after its last row, or an interim one if it was killed later.
            until = following[0].time if following else float("inf")
            first, end = bisect_left(times, process[0].time), bisect_left(times, until)
            last = max(first, bisect_left(times, process[-1].time))
            if last < end:
                yield process, left[last]
            else:
                yield process, left[end - 1] if first < end and left[end - 1].in_passing else None


def server_of(reconciliation: Reconciliation) -> tuple[str, float]:
    """Return the identity of one start of a server, shared by its reconciliations."""
    return reconciliation.model, reconciliation.since
