"""The ledger (one row for each try of a request), the money that was spent, and token reconciliation.

Reconciliation compares the ledger's sums with the engine's counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

import msgspec

from serving.errors import SpendingCapReached
from serving.usage import Counters, Integer, Number, Prices, Usage

Status = Literal["ok", "invalid", "truncated", "overflow", "aborted", "failed"]
"""`invalid` and `truncated`: answered, but without a complete valid call. `overflow`: refused because the
prompt exceeds the context, or its answer would. `aborted`: cut off by us or by the engine's shutdown.
`failed`: no answer."""

READINESS = "readiness"
"""Role of each client's first request, which shows that the engine answers."""


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One try of one request.

    Attributes:
        request: id shared by the tries of one request.
        retry: 0 for the first try.
        time: Unix seconds at which it ended.
        labels: the caller's own labels (run, episode, role, attempt, ...).
        wasted: whether its tokens, if any, were useless: the answer was not used, or only that of a later
            try.
        usage: as the engine reported it, with the reasoning tokens as the transcript counts them (completions
            API); `None` if it reported nothing.
        seconds: time from sending to the end of the answer.
        cacheable: prompt tokens that the conversation's request before, or else the warmed-up prefix, left in
            the cache, if the prompt was computed (conversations on the completions API).
        at_most: without a usage: what the engine may have counted.
        thought_cut: whether its budget ended the answer's reasoning (completions API).
    """

    request: str
    retry: Integer
    time: Number
    labels: dict[str, str]
    model: str
    status: Status
    wasted: bool
    usage: Usage | None
    seconds: Number
    error: str | None = None
    cacheable: Integer | None = None
    at_most: Usage | None = None
    thought_cut: bool = False
    format: Integer = 1


class Spending:
    """The money that a run has spent and may spend, over all its engines.

    Args:
        cap_usd: hard limit; `None` for no limit.
        before_usd: what earlier processes of the same run have spent.
    """

    def __init__(self, cap_usd: float | None = None, before_usd: float = 0.0) -> None:
        self._cap_usd = cap_usd
        self._committed_usd = before_usd

    def commit(self, usd: float) -> None:
        """Count money that was spent."""
        self._committed_usd += usd

    @contextmanager
    def reservation(self, usd: float) -> Iterator[None]:
        """Reserve money for as long as the context lasts. Raises `SpendingCapReached`."""
        if self._cap_usd is not None and self._committed_usd + usd > self._cap_usd:
            raise SpendingCapReached(
                f"{self._committed_usd:.4f} USD are spent or promised, and the next request could cost"
                f" {usd:.4f} USD more: over the cap of {self._cap_usd:.4f} USD (serving.spending_cap_usd)"
            )
        self._committed_usd += usd
        try:
            yield
        finally:
            self._committed_usd -= usd


class Meter:
    """Counts the tokens and the money of all requests of one client to one engine.

    Args:
        write: called with each row before its answer is passed on. So no answer is used without its row.
    """

    def __init__(
        self, write: Callable[[LedgerRow], None], prices: Prices, spending: Spending | None = None
    ) -> None:
        self.prices = prices
        self.total = Usage()
        self.requests = 0
        self.spent_usd = 0.0
        """Cost of everything so far, in USD at the price list."""
        self.unreported = 0
        """Number of tries without a reported usage, although the engine may have worked on them."""
        self.at_most = Usage()
        """Upper bound of what the engine counted for these tries."""
        self._write = write
        self._spending = spending or Spending()

    def record(self, row: LedgerRow) -> None:
        """Write a row and count it. A try without a reported usage counts at its upper bound."""
        self._write(row)
        self.requests += 1
        if row.usage is not None:
            self.total += row.usage
            usd = self.prices.cost(row.usage)
            self.spent_usd += usd
            self._spending.commit(usd)
        elif row.at_most is not None:
            self.unreported += 1
            self.at_most += row.at_most
            self._spending.commit(self.prices.cost(row.at_most))

    def reservation(self, prompt_tokens: int, answer_tokens: int) -> AbstractContextManager[None]:
        """Reserve the highest possible cost of a request, so that concurrent requests together stay below the
        cap. Raises `SpendingCapReached`."""
        worst = Usage(prompt=prompt_tokens, completion=answer_tokens)
        return self._spending.reservation(self.prices.cost(worst))


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of both sides since the engine was started, or attached to.

    For requests that the engine finished, both must agree to the token, in every class. For requests that
    were cut off (disconnects, time-outs) no client sees the tokens. The engine's counts beyond the ledger
    must then be at most the sum of their prompts and `max_tokens`, and not negative.

    Attributes:
        model: the model config's name.
        ledger: sums of the rows that report a usage.
        engine: differences of the engine's counters.
        unreported: tries without a reported usage.
        at_most: what the engine may have counted for those.
        ours: whether only we can have used the engine.
        since: start of the counts, in Unix seconds.
        time: end of the counts, in Unix seconds.
    """

    model: str
    ledger: Counters
    engine: Counters
    unreported: Integer
    at_most: Counters
    ours: bool
    since: Number
    time: Number
    format: Integer = 1

    @property
    def residual(self) -> Counters:
        """The engine's counts beyond the ledger: the requests that were cut off."""
        return self.engine - self.ledger

    @property
    def agrees(self) -> bool:
        """Whether the unreported tries alone can explain the residual."""
        rest, most = self.residual, self.at_most
        return (
            0 <= rest.prompt <= most.prompt
            and 0 <= rest.cached <= most.cached
            and rest.prompt - rest.cached >= 0  # the computed tokens
            and 0 <= rest.generated <= most.generated
        )
