"""What a run has spent, in USD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from serving.meter import LedgerRow
from serving.usage import Prices, Usage


def spent_usd(rows: Iterable[LedgerRow], prices: Mapping[str, Prices]) -> float:
    """Return the cost of requests in USD; a request with unknown usage costs its maximum.

    Args:
        prices: by model. A model without prices (its model config was renamed) costs as much as the most
            expensive one.
    """
    dearest = max(prices.values(), key=lambda list_: list_.output)
    return sum(prices.get(row.model, dearest).cost(row.usage or row.at_most or Usage()) for row in rows)
