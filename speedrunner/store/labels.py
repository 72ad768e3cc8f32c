"""Labels of the ledger's rows: opaque to `serving`, typed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from serving.meter import LedgerRow
from speedrunner.store.files import StorageError
from speedrunner.store.records import EpisodeRow


class Labels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The purpose of a request. `None`: does not apply (readiness checks, probes).

    Attributes:
        phase: `train`, `test` or `sleep`.
        policy: version of the policy in use.
        episode: key of the episode or sleep.
        attempt: number of the attempt, from 1.
        role: the requester: `actor`, `inducer`, `prefix_warm_up` and so on. Set when the conversation is
            opened.
        replica: the replica of the engine that got the request. Set at the same time.
    """

    phase: str | None = None
    policy: int | None = None
    episode: str | None = None
    attempt: int | None = None
    role: str | None = None
    replica: int | None = None

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Self:
        """Read the labels of a row and ignore other ones."""
        return msgspec.convert(labels, cls, strict=False)

    def plain(self) -> dict[str, str]:
        """Return the labels in the form that a row stores."""
        return {name: str(value) for name, value in msgspec.to_builtins(self).items()}


def attempts(rows: Iterable[LedgerRow], episodes: Iterable[EpisodeRow] = ()) -> dict[str, int]:
    """Return the highest attempt so far for each value of the label `episode`; the next attempt is one more.

    Args:
        rows: the ledger.
        episodes: finished episodes, since one that broke at its start has no row in the ledger.

    Raises `StorageError`: an attempt is not a number.
    """
    highest: dict[str, int] = {}
    tried = {attempt_of(row.labels) for row in rows} | {(row.episode, str(row.attempt)) for row in episodes}
    for episode, attempt in tried:
        if episode is not None:
            try:
                highest[episode] = max(int(attempt or ""), highest.get(episode, 0))
            except ValueError as error:
                raise StorageError(f"the ledger has a row of {episode!r} with no attempt: {error}") from error
    return highest


def attempt_of(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the labels `episode` and `attempt` of a row."""
    return labels.get("episode"), labels.get("attempt")
