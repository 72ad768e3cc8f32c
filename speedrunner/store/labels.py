"""What the ledger's rows are labelled with: opaque to the engine's side, typed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from serving.meter import LedgerRow


class Labels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """For what a request was sent. `None` stands for what does not apply (readiness, probes).

    Attributes:
        phase: `train`, `test` or `sleep`.
        policy: version of the policy in use.
        episode: key of the episode, or of the sleep.
        attempt: at it; 1 is the first.
        role: who asked: `actor`, `inducer`, `warming` and so on. Set where the conversation is opened.
    """

    phase: str | None = None
    policy: int | None = None
    episode: str | None = None
    attempt: int | None = None
    role: str | None = None

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Self:
        """Read them from a row; other labels are left out."""
        return msgspec.convert(labels, cls, strict=False)

    def plain(self) -> dict[str, str]:
        """As a row holds them."""
        return {name: str(value) for name, value in msgspec.to_builtins(self).items()}


def attempts(rows: Iterable[LedgerRow]) -> dict[str, int]:
    """Highest attempt in the ledger for each value of the label `episode`; the next try is one more."""
    highest: dict[str, int] = {}
    for row in rows:
        labels = Labels.of(row.labels)
        if labels.episode is not None and labels.attempt is not None:
            highest[labels.episode] = max(labels.attempt, highest.get(labels.episode, 0))
    return highest
