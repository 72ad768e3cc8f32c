"""Token reconciliation: the ledger's sums compared with the engine's counters."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from serving.meter import Meter
from serving.usage import Counters, Integer, Number, Usage


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of both sides since the engine was last started, or attached to.

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
        clients: number of ledgers that it covers; 0 if not known.
    """

    model: str
    ledger: Counters
    engine: Counters
    unreported: Integer
    at_most: Counters
    ours: bool
    since: Number
    time: Number
    clients: Integer = 0
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


class Sums(NamedTuple):
    """The clients' sums at one time: tokens with a reported usage, the number of tries that report none, and
    the upper bound for those tries."""

    time: float
    ledger: Counters
    unreported: int
    at_most: Counters


class TokenSums:
    """Both sides' sums since the engine was last started, or attached to; see `Reconciliation`."""

    def __init__(self, model: str, ours: bool) -> None:
        self._model = model
        self._ours = ours
        self._meters: list[Meter] = []
        self._clients = 0
        self.begin(Counters())

    def add(self, meter: Meter, *, is_client: bool = True) -> None:
        """Include another meter's requests: a client's, with a ledger, or our own."""
        self._meters.append(meter)
        self._clients += is_client

    def begin(self, engine: Counters) -> None:
        """Restart the counts now, with the engine's counters at `engine`."""
        self._since = time.time()
        self._engine = engine
        self._first = self._sums()

    def leave_out(self, usage: Usage) -> None:
        """Subtract from both sides a request that is in no run's ledger."""
        self._engine += Counters.of(usage)
        self._first = self._first._replace(ledger=self._first.ledger + Counters.of(usage))

    def reconciliation(self, engine: Counters) -> Reconciliation:
        """Compare the clients' sums with the engine's counters; no request may be in flight."""
        now, first = self._sums(), self._first
        return Reconciliation(
            model=self._model,
            ledger=now.ledger - first.ledger,
            engine=engine - self._engine,
            unreported=now.unreported - first.unreported,
            at_most=now.at_most - first.at_most,
            ours=self._ours,
            since=self._since,
            time=now.time,
            clients=self._clients,
        )

    def _sums(self) -> Sums:
        total, most = (
            sum((getattr(meter, name) for meter in self._meters), Usage()) for name in ("total", "at_most")
        )
        return Sums(
            time.time(),
            Counters.of(total),
            sum(meter.unreported for meter in self._meters),
            Counters(most.prompt, most.prompt, most.completion),
        )
