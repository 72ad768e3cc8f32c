"""What the ledger's rows are labelled with: opaque to the engine's side, typed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from serving.meter import LedgerRow
from speedrunner.store.records import EpisodeRow


class Labels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """For what a request was sent. `None` stands for what does not apply (readiness, probes).

    Attributes:
        phase: `train`, `test` or `sleep`.
        policy: version of the policy in use.
        episode: key of the episode, or of the sleep.
        attempt: at it; 1 is the first.
        role: who asked: `actor`, `inducer`, `prefix_warm_up` and so on. Set where the conversation is opened.
        replica: of the engine, to which it was sent. Set there, too.
    """

    phase: str | None = None
    policy: int | None = None
    episode: str | None = None
    attempt: int | None = None
    role: str | None = None
    replica: int | None = None

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Self:
        """Read them from a row; other labels are left out."""
        return msgspec.convert(labels, cls, strict=False)

    def plain(self) -> dict[str, str]:
        """As a row holds them."""
        return {name: str(value) for name, value in msgspec.to_builtins(self).items()}


def attempts(rows: Iterable[LedgerRow], episodes: Iterable[EpisodeRow] = ()) -> dict[str, int]:
    """Highest attempt so far for each value of the label `episode`; the next try is one more.

    Args:
        rows: the ledger.
        episodes: those that ended, as one that broke at its start has no row in the ledger.
    """
    highest: dict[str, int] = {}
    tried = {attempt_of(row.labels) for row in rows} | {(row.episode, str(row.attempt)) for row in episodes}
    for episode, attempt in tried:
        if episode is not None and attempt is not None:
            highest[episode] = max(int(attempt), highest.get(episode, 0))
    return highest


def attempt_of(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The labels `episode` and `attempt`, as a row has them."""
    return labels.get("episode"), labels.get("attempt")
