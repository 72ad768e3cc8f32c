"""The ledger: one row per request that was tried, and what has been spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec

from serving.errors import SpendingCapReached
from serving.usage import Prices, Usage

Status = Literal["ok", "invalid", "truncated", "overflow", "aborted", "failed"]
"""`invalid` and `truncated`: answered, but without a complete valid call. `overflow`: refused, as the
prompt exceeds the context. `aborted`: cut off by us or by the engine's shutdown. `failed`: no answer."""


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One try of one request.

    Attributes:
        request: shared by the tries of one request.
        retry: 0 for the first try.
        time: Unix seconds at which it ended.
        labels: the caller's own (which run, episode, role, attempt ...).
        wasted: its tokens, if any, served nothing: a later try or nobody used the answer.
        usage: as the engine reported it; `None` where it reported nothing.
        seconds: from sending to the answer's end.
    """

    request: str
    retry: int
    time: float
    labels: dict[str, str]
    model: str
    status: Status
    wasted: bool
    usage: Usage | None
    seconds: float
    error: str | None = None
    format: int = 1


class Meter:
    """Counts tokens and money of everything that goes through one engine.

    Args:
        write: called with each row before the answer is handed on, so that no answer is ever used
            whose row was not written.
        prices: the price list.
        cap_usd: hard limit of what may be spent; `None` for none.
        spent_before: tokens of earlier processes of the same run, which count towards the cap.
    """

    def __init__(
        self,
        write: Callable[[LedgerRow], None],
        prices: Prices,
        cap_usd: float | None = None,
        spent_before: Usage | None = None,
    ) -> None:
        self.prices = prices
        self.total = Usage()
        self.requests = 0
        self.unreported = 0
        """Tries of which the engine reported no usage although it may have worked on them."""
        self._write = write
        self._cap_usd = cap_usd
        self._reserved_usd = 0.0
        self._assumed_usd = prices.cost(spent_before or Usage())

    @property
    def spent_usd(self) -> float:
        """USD at the price list for everything so far."""
        return self.prices.cost(self.total)

    def record(self, row: LedgerRow) -> None:
        """Write a row and count it."""
        self._write(row)
        self.requests += 1
        if row.usage is not None:
            self.total += row.usage
        elif row.status in ("aborted", "failed"):
            self.unreported += 1

    def assume(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Count a try whose usage the engine did not report at its worst; for the cap alone."""
        self._assumed_usd += self.prices.cost(Usage(prompt=prompt_tokens, completion=answer_tokens))

    @contextmanager
    def reservation(self, prompt_tokens: int, answer_tokens: int) -> Iterator[None]:
        """Set money aside for a request at its worst, so that concurrent ones cannot pass the cap together.

        Raises:
            SpendingCapReached: the cap does not allow the request.
        """
        worst = self.prices.cost(Usage(prompt=prompt_tokens, completion=answer_tokens))
        committed = self.spent_usd + self._assumed_usd + self._reserved_usd
        if self._cap_usd is not None and committed + worst > self._cap_usd:
            raise SpendingCapReached(
                f"spent {self.spent_usd:.4f} USD, and the next request could cost {worst:.4f} USD more:"
                f" over the cap of {self._cap_usd:.4f} USD (serving.spending_cap_usd)"
            )
        self._reserved_usd += worst
        try:
            yield
        finally:
            self._reserved_usd -= worst
