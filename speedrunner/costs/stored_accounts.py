"""Whether a ledger's sums are those that a run's processes stored when they compared them with the engine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from serving.balance import Balance
from serving.engine.metrics import Counters
from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.costs.engine_time import sessions
from speedrunner.store.data import RunData


class StoredAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One stored account beside the ledgers that it was made of.

    Attributes:
        ledger: sums of the rows of the process (of a sweep: of all given runs) whose account it is.
        stored: the same sums, as the process found them itself.
        engine: differences of the engine's counters.
        balances: whether the process found ledger and engine to agree.
        time: when, in Unix seconds.
    """

    ledger: Counters
    stored: Counters
    engine: Counters
    balances: bool
    time: float

    @property
    def equal(self) -> bool:
        """Whether today's sums are the stored ones."""
        return self.ledger == self.stored


class StoredAccounts(msgspec.Struct, frozen=True, kw_only=True):
    """All stored accounts of some runs.

    Attributes:
        accounts: one for each process that came to its end.
        without: processes that left none: killed ones, and one that goes on.
    """

    accounts: list[StoredAccount]
    without: int

    @property
    def equal(self) -> bool | None:
        """Whether every one of them is what the ledgers say; `None` where none was stored."""
        return all(account.equal for account in self.accounts) if self.accounts else None


def stored_accounts(runs: Sequence[RunData], models: Sequence[str]) -> StoredAccounts:
    """Compare the ledgers of runs that shared an engine, or of one run, with their stored accounts.

    Args:
        models: the actor's model of each run: the accounts are of its engine.
    """
    processes = [
        process
        for run, model in zip(runs, models, strict=True)
        for process in _processes(
            [balance for balance in run.accounts if balance.model == model],
            [row for row in run.requests if row.model == model],
        )
    ]
    found: dict[Balance, list[LedgerRow]] = {}
    without = 0
    for balance, rows in processes:
        if balance is None:
            without += 1
        else:
            # A sweep stores one account in all its runs; after a restart it is of what came then.
            found.setdefault(balance, []).extend(row for row in rows if row.time >= balance.since)
    return StoredAccounts(
        accounts=[
            StoredAccount(
                ledger=_counters(rows),
                stored=balance.ledger,
                engine=balance.engine,
                balances=balance.agrees,
                time=balance.time,
            )
            for balance, rows in found.items()
        ],
        without=without,
    )


def _processes(
    balances: Sequence[Balance], rows: Sequence[LedgerRow]
) -> list[tuple[Balance | None, list[LedgerRow]]]:
    """Each process of a run, with the account that it left at its end: the first one after its last row."""
    left = sorted(balances, key=lambda balance: balance.time)
    processes: list[tuple[Balance | None, list[LedgerRow]]] = []
    all_ = sessions(rows)
    for number, process in enumerate(all_):
        until = all_[number + 1][0].time if number + 1 < len(all_) else float("inf")
        own = next((each for each in left if process[-1].time <= each.time < until), None)
        processes.append((own, process))
    return processes


def _counters(rows: Sequence[LedgerRow]) -> Counters:
    total = sum((row.usage or Usage() for row in rows), Usage())
    return Counters(total.prompt, total.cached, total.completion)
