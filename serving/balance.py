"""The ledger's sums beside the engine's counters."""

from __future__ import annotations

import time

import msgspec

from serving.engine.metrics import Counters
from serving.meter import Meter
from serving.usage import Usage


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """Accounts of everything since the engine was started last, or attached to.

    Requests that the engine finished must agree to the token, in every class. Of requests that were cut off
    (disconnects, time-outs) no client sees the tokens: what the engine counted beyond the ledger must lie
    between nothing and the sum of their prompts and `max_tokens`.

    Attributes:
        model: the card's name.
        ledger: sums of the rows that report a usage.
        engine: differences of the engine's counters.
        unreported: tries of which the engine reported no usage.
        at_most: what the engine may have counted for those.
        ours: whether nobody but us can have used the engine.
        since: from when on both were counted, in Unix seconds.
        time: until when.
        clients: how many ledgers it covers; 0 where that is not known.
    """

    model: str
    ledger: Counters
    engine: Counters
    unreported: int
    at_most: Counters
    ours: bool
    since: float
    time: float
    clients: int = 0
    format: int = 1

    @property
    def residual(self) -> Counters:
        """What the engine counted beyond the ledger: the requests that were cut off."""
        return self.engine - self.ledger

    @property
    def agrees(self) -> bool:
        """Whether the residual can be explained by the unreported tries alone."""
        rest, most = self.residual, self.at_most
        return (
            0 <= rest.prompt <= most.prompt
            and 0 <= rest.cached <= most.cached
            and rest.prompt - rest.cached >= 0  # the computed ones
            and 0 <= rest.generated <= most.generated
        )


class Accounts:
    """Both sides' sums since the engine was started last, or attached to; see `Balance`."""

    def __init__(self, model: str, ours: bool) -> None:
        self._model = model
        self._ours = ours
        self._meters: list[Meter] = []
        self.begin(Counters())

    def add(self, meter: Meter) -> None:
        """Count what another client sends."""
        self._meters.append(meter)

    def begin(self, engine: Counters) -> None:
        """Count anew from here on, where the engine's counters stand at `engine`."""
        self._since = time.time()
        self._engine = engine
        self._ledger, self._unreported, self._at_most = self._sums()

    def leave_out(self, usage: Usage) -> None:
        """Take a request that stands in no run's ledger from both sides."""
        self._engine += Counters.of(usage)
        self._ledger += Counters.of(usage)

    def balance(self, engine: Counters) -> Balance:
        """Compare, where the engine's counters stand at `engine` now."""
        ledger, unreported, at_most = self._sums()
        return Balance(
            model=self._model,
            ledger=ledger - self._ledger,
            engine=engine - self._engine,
            unreported=unreported - self._unreported,
            at_most=at_most - self._at_most,
            ours=self._ours,
            since=round(self._since, 3),
            time=round(time.time(), 3),
            clients=len(self._meters),
        )

    def _sums(self) -> tuple[Counters, int, Counters]:
        """Over all clients: tokens told, tries that told none, what the engine may have counted for them."""
        total = sum((meter.total for meter in self._meters), Usage())
        most = sum((meter.at_most for meter in self._meters), Usage())
        unreported = sum(meter.unreported for meter in self._meters)
        return Counters.of(total), unreported, Counters(most.prompt, most.prompt, most.completion)
