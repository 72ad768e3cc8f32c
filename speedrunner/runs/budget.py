"""What a run has spent: the token budget of its training, and USD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from serving.meter import LedgerRow
from serving.usage import Prices, Usage
from speedrunner.store.labels import Labels


class TokenBudget:
    """Tokens spent on a run's training: prompt and generated tokens of all roles in rollouts and sleeps,
    wasted ones included.

    Args:
        tokens: the limit; `None`: no limit.
        rows: ledger rows to count.
    """

    def __init__(self, tokens: int | None, rows: Iterable[LedgerRow] = ()) -> None:
        self.tokens = tokens
        self.spent = 0
        for row in rows:
            self.record(row)

    def record(self, row: LedgerRow) -> None:
        """Count a request; if its tokens are unknown, count the maximum that it can have used."""
        if Labels.of(row.labels).phase in ("train", "sleep"):
            usage = row.usage or row.at_most or Usage()
            self.spent += usage.prompt + usage.completion

    @property
    def is_spent(self) -> bool:
        """Return whether the budget is spent, which ends training."""
        return self.tokens is not None and self.spent >= self.tokens


def spent_usd(rows: Iterable[LedgerRow], prices: Mapping[str, Prices]) -> float:
    """Return the cost of requests in USD; a request with unknown usage costs its maximum.

    Args:
        prices: by model. A model without prices (its model config was renamed) costs as much as the most
            expensive one.
    """
    dearest = max(prices.values(), key=lambda list_: list_.output)
    return sum(prices.get(row.model, dearest).cost(row.usage or row.at_most or Usage()) for row in rows)
