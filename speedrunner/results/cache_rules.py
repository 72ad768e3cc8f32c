"""Rules for which prompt tokens of a ledger cost the price of cached ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from serving.meter import LedgerRow
from serving.usage import Usage

RuleName = Literal["engine", "cold", "provider"]


class CacheRule(msgspec.Struct, frozen=True):
    """A rule. Tokens that it does not accept as cached are priced as uncached.

    - `engine`: the tokens that the engine took from its cache.
    - `cold`: of these, at most what an earlier request of the same episode (or sleep), attempt and role left
      there. The first prompt of each episode and sleep is uncached, and so is a prefix warm-up.
    - `provider`: what a provider would report, who caches whole steps of tokens from a minimum on.

    Attributes:
        minimum, step: tokens, for `provider`.
    """

    name: RuleName = "engine"
    minimum: int = 0
    step: int = 1

    def priced(self, rows: Iterable[LedgerRow]) -> list[Usage | None]:
        """Return the usage to price for each row of one ledger, in the order of the ledger."""
        left: dict[tuple[str | None, ...], int] = {}
        return [row.usage and self._price(row.usage, row.labels, left) for row in rows]

    def _price(self, usage: Usage, labels: dict[str, str], left: dict[tuple[str | None, ...], int]) -> Usage:
        cached = usage.cached
        if self.name == "cold":
            conversation = tuple(map(labels.get, ("episode", "attempt", "role")))
            cached = min(cached, left.get(conversation, 0)) if conversation[0] else 0
            left[conversation] = max(left.get(conversation, 0), usage.prompt + usage.completion)
        elif self.name == "provider":
            cached = cached // self.step * self.step if cached >= self.minimum else 0
        return usage if cached == usage.cached else msgspec.structs.replace(usage, cached=cached)
