"""Whether a ledger's sums are those that a run's processes stored when they compared them with the engine."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from serving.engine.metrics import Counters
from serving.meter import LedgerRow
from serving.reconciliation import Reconciliation
from serving.usage import Usage
from speedrunner.results.engine_time import sessions
from speedrunner.store.data import RunData


class StoredReconciliation(msgspec.Struct, frozen=True):
    """One stored account beside the ledgers that it was made of.

    Attributes:
        ledger: sums of the rows of the process (of a sweep: of all given runs) whose account it is.
        stored: the same sums, as the process found them itself.
        equal: whether they are the same.
        engine: differences of the engine's counters.
        balances: whether the process found ledger and engine to agree.
        time: when, in Unix seconds.
    """

    ledger: Counters
    stored: Counters
    equal: bool
    engine: Counters
    reconciliations: bool
    time: float


class StoredReconciliations(msgspec.Struct, frozen=True):
    """All stored accounts of some runs.

    Attributes:
        equal: whether every one of them is what the ledgers say; `None` where none was stored.
        without: uses of an engine of which none was stored: by killed processes, and one that goes on.
        accounts: one for each process, and each engine that it used: at its end, or where it was killed the
            last in passing, beside what the ledger held then.
    """

    equal: bool | None
    without: int
    reconciliations: list[StoredReconciliation]


def stored_reconciliations(runs: Sequence[RunData]) -> StoredReconciliations:
    """Compare the ledgers of runs that shared their engines, or of one run, with their stored accounts."""
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
                # A sweep stores one account in all its runs, if no kill comes between; after a restart it is
                # of what came then.
                own = passing[server_of(own)] if own.in_passing else own
                told = (row for row in process if own.since <= row.time <= own.time)
                found.setdefault(own, []).extend(told)
    reconciliations = []
    for reconciliation, rows in found.items():
        ledger, stored = (
            Counters.of(sum((row.usage or Usage() for row in rows), Usage())),
            reconciliation.ledger,
        )
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
    """The rows of each process of a run and each engine that it used, with the account that it left."""
    by_model: dict[str, list[LedgerRow]] = {}
    for row in run.requests:
        by_model.setdefault(row.model, []).append(row)
    reconciliations: dict[str, list[Reconciliation]] = {}
    for account in sorted(run.reconciliations, key=lambda each: each.time):
        reconciliations.setdefault(account.model, []).append(account)
    for model, rows in by_model.items():
        processes, left = sessions(rows), reconciliations.get(model, [])
        times = [each.time for each in left]
        for process, following in pairwise([*processes, []]):
            # It left the first account after its last row, or was killed after one in passing.
            until = following[0].time if following else float("inf")
            first, end = bisect_left(times, process[0].time), bisect_left(times, until)
            last = max(first, bisect_left(times, process[-1].time))
            if last < end:
                yield process, left[last]
            else:
                yield process, left[end - 1] if first < end and left[end - 1].in_passing else None


def server_of(account: Reconciliation) -> tuple[str, float]:
    """What accounts of one start of a server have in common."""
    return account.model, account.since
