"""The ledger's sums beside the engine's counters."""

from __future__ import annotations

import msgspec

from serving.engine.metrics import Counters


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
    """

    model: str
    ledger: Counters
    engine: Counters
    unreported: int
    at_most: Counters
    ours: bool
    since: float
    time: float
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
