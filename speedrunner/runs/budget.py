"""What training may cost in tokens, and has cost."""

from __future__ import annotations

from collections.abc import Iterable

from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.store.labels import Labels


class TokenBudget:
    """Tokens of a run's training, prompt and generated ones of all roles: rollouts, sleeps, what was wasted.

    Args:
        tokens: what it may cost; `None` for no bound.
        rows: what it has cost.
    """

    def __init__(self, tokens: int | None, rows: Iterable[LedgerRow] = ()) -> None:
        self.tokens = tokens
        self.spent = 0
        for row in rows:
            self.record(row)

    def record(self, row: LedgerRow) -> None:
        """Count a request: at most what it can have cost, where that is not known."""
        if Labels.of(row.labels).phase in ("train", "sleep"):
            usage = row.usage or row.at_most or Usage()
            self.spent += usage.prompt + usage.completion

    @property
    def is_spent(self) -> bool:
        """Whether training ends."""
        return self.tokens is not None and self.spent >= self.tokens
