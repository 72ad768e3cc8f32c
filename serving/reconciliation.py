"""Token reconciliation: the ledger's sums compared with the engine's counters."""

from __future__ import annotations

import time

import msgspec

from serving.meter import Meter
from serving.usage import Counters, Integer, Number, Usage


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


class TokenSums:
    """Both sides' sums since the engine was started, or attached to; see `Reconciliation`."""

    def __init__(self, model: str, ours: bool) -> None:
        self._model = model
        self._ours = ours
        self._meters: list[Meter] = []
        self.begin(Counters())

    def add(self, meter: Meter) -> None:
        """Include the requests of another client."""
        self._meters.append(meter)

    def begin(self, engine: Counters) -> None:
        """Start the counts now, before the first client, with the engine's counters at `engine`."""
        self._since, self._engine = time.time(), engine

    def reconciliation(self, engine: Counters) -> Reconciliation:
        """Compare the clients' sums with the engine's counters; no request may be in flight."""
        total, most = (
            sum((getattr(meter, name) for meter in self._meters), Usage()) for name in ("total", "at_most")
        )
        return Reconciliation(
            model=self._model,
            ledger=Counters.of(total),
            engine=engine - self._engine,
            unreported=sum(meter.unreported for meter in self._meters),
            at_most=Counters(most.prompt, most.prompt, most.completion),
            ours=self._ours,
            since=self._since,
            time=time.time(),
            clients=len(self._meters),
        )
