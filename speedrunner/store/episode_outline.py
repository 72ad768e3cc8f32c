"""Episodes without their texts: who called what. Reading them takes a tenth of the time of whole episodes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from serving.usage import Integer, Number
from speedrunner.store.records import FORMAT


class CallOutline(msgspec.Struct):
    """A call without arguments and result; see `CallNode`."""

    name: str
    kind: str
    error: str | None = None
    actions: Integer = 0
    calls: list[CallOutline] = []

    def below(self) -> Iterator[CallOutline]:
        """Yield every call below this one, in order."""
        waiting = self.calls[::-1]
        while waiting:
            call = waiting.pop()
            yield call
            waiting += reversed(call.calls)


class TurnOutline(msgspec.Struct):
    """A turn without messages and answer."""

    executed: CallOutline | None = None
    role: str = "actor"


class ScoreOutline(msgspec.Struct):
    """An outcome without its details."""

    score: Number


class EpisodeOutline(msgspec.Struct):
    """A finished episode; see `Trajectory`."""

    episode: str
    policy: Integer
    turns: list[TurnOutline]
    outcome: ScoreOutline | None = None
    format: Integer = FORMAT
