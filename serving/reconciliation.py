"""The ledger's sums beside the engine's counters."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from serving.engine.metrics import Counters
from serving.meter import Meter
from serving.usage import Usage
from typed.numbers import Real, Whole


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """Accounts of everything since the engine was started last, or attached to.

    Requests that the engine finished must agree to the token, in every class. Of requests that were cut off
    (disconnects, time-outs) no client sees the tokens: what the engine counted beyond the ledger must lie
    between nothing and the sum of their prompts and `max_tokens`.

    Attributes:
        model: the model config's name.
        ledger: sums of the rows that report a usage.
        engine: differences of the engine's counters.
        unreported: tries of which the engine reported no usage.
        at_most: what the engine may have counted for those, and for requests in flight.
        ours: whether nobody but us can have used the engine.
        since: from when on both were counted, in Unix seconds.
        time: until when.
        clients: how many ledgers it covers; 0 where that is not known.
        in_passing: read while requests were in flight: the last that is known of a process that was killed.
    """

    model: str
    ledger: Counters
    engine: Counters
    unreported: Whole
    at_most: Counters
    ours: bool
    since: Real
    time: Real
    clients: Whole = 0
    in_passing: bool = False
    format: Whole = 1

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


class Sums(NamedTuple):
    """The clients' side at a moment: tokens told, tries that told none, and what may have been counted at
    most for these, for all that were begun, and for all that have ended."""

    time: float
    ledger: Counters
    unreported: int
    at_most: Counters
    begun: Counters
    ended: Counters


class TokenSums:
    """Both sides' sums since the engine was started last, or attached to; see `Reconciliation`."""

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
        self._first = self.sums()

    def leave_out(self, usage: Usage) -> None:
        """Take a request that stands in no run's ledger from both sides."""
        self._engine += Counters.of(usage)
        self._first = self._first._replace(ledger=self._first.ledger + Counters.of(usage))

    def reconciliation(self, engine: Counters, before: Sums, *, in_passing: bool) -> Reconciliation:
        """Compare, where the engine's counters stood at `engine` after the clients' were summed up."""
        now, first = self.sums(), self._first
        in_flight = now.begun - before.ended
        return Reconciliation(
            model=self._model,
            ledger=before.ledger - first.ledger,
            engine=engine - self._engine,
            unreported=now.unreported - first.unreported,
            at_most=now.at_most - first.at_most + in_flight,
            ours=self._ours,
            since=self._since,
            time=before.time,
            clients=len(self._meters),
            in_passing=in_passing,
        )

    def sums(self) -> Sums:
        """What the clients tell now."""
        usages = {
            name: sum((getattr(meter, name) for meter in self._meters), Usage())
            for name in ("total", "at_most", "begun", "ended")
        }
        most = {name: Counters(each.prompt, each.prompt, each.completion) for name, each in usages.items()}
        return Sums(
            time.time(),
            Counters.of(usages["total"]),
            sum(meter.unreported for meter in self._meters),
            most["at_most"],
            most["begun"],
            most["ended"],
        )
