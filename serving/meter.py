"""The ledger: one row per request that was tried, and what has been spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

import msgspec

from serving.errors import SpendingCapReached
from serving.usage import Prices, Usage
from typed.numbers import Real, Whole

Status = Literal["ok", "invalid", "truncated", "overflow", "aborted", "failed"]
"""`invalid` and `truncated`: answered, but without a complete valid call. `overflow`: the prompt exceeds the
context and was refused, or its answer would. `aborted`: cut off by us or by the engine's shutdown. `failed`:
no answer."""

READINESS = "readiness"
"""Role of the request with which each client begins, which shows that the engine answers."""


NOTHING = Usage()


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
        cacheable: what an ideal cache could have given of a prompt that was computed (completions API); see
            `serving.engine.ideal_cache`.
        at_most: where there is no usage: what the engine may have counted.
        thought_cut: whether its budget closed the answer's thinking region (completions API).
    """

    request: str
    retry: Whole
    time: Real
    labels: dict[str, str]
    model: str
    status: Status
    wasted: bool
    usage: Usage | None
    seconds: Real
    error: str | None = None
    cacheable: Whole | None = None
    at_most: Usage | None = None
    thought_cut: bool = False
    format: Whole = 1


class Spending:
    """What a run has spent and may spend, over all the engines that it uses.

    Args:
        cap_usd: hard limit; `None` for none.
        before_usd: what earlier processes of the same run have spent.
    """

    def __init__(self, cap_usd: float | None = None, before_usd: float = 0.0) -> None:
        self._cap_usd = cap_usd
        self._committed_usd = before_usd

    def commit(self, usd: float) -> None:
        """Count money that is gone."""
        self._committed_usd += usd

    @contextmanager
    def reservation(self, usd: float) -> Iterator[None]:
        """Set money aside for as long as the context lasts. Raises `SpendingCapReached`."""
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
    """Counts tokens and money of everything that one client sends to one engine.

    Args:
        write: called with each row before the answer is handed on, so that no answer is ever used
            whose row was not written.
        spending: what may be spent; `None` for as much as one likes.
    """

    def __init__(
        self, write: Callable[[LedgerRow], None], prices: Prices, spending: Spending | None = None
    ) -> None:
        self.prices = prices
        self.total = Usage()
        self.requests = 0
        self.unreported = 0
        """Tries of which the engine reported no usage although it may have worked on them."""
        self.at_most = Usage()
        """What the engine may have counted for them."""
        self.begun = Usage()
        """What all tries that were begun may take at most."""
        self.ended = Usage()
        """The same of those that have their row."""
        self._write = write
        self._spending = spending or Spending()

    @property
    def spent_usd(self) -> float:
        """USD at the price list for everything so far."""
        return self.prices.cost(self.total)

    def record(self, row: LedgerRow, bound: Usage = NOTHING) -> None:
        """Write a row and count it; what was not reported counts as spent at its worst.

        Args:
            bound: what the try could have taken at most, as it was reserved.
        """
        self._write(row)
        self.requests += 1
        self.ended += bound
        if row.usage is not None:
            self.total += row.usage
            self._spending.commit(self.prices.cost(row.usage))
        elif row.at_most is not None:
            self.unreported += 1
            self.at_most += row.at_most
            self._spending.commit(self.prices.cost(row.at_most))

    def reservation(self, prompt_tokens: int, answer_tokens: int) -> AbstractContextManager[None]:
        """Set money aside for a request at its worst, so that concurrent ones cannot pass the cap together.
        Raises `SpendingCapReached`."""
        worst = Usage(prompt=prompt_tokens, completion=answer_tokens)
        self.begun += worst
        return self._spending.reservation(self.prices.cost(worst))
