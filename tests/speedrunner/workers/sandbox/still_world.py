"""What skills act in, without an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speedrunner.workers.sandbox.channel import InvalidMessage
from speedrunner.workers.sandbox.skill_process import Granted, Refused


@dataclass
class StillWorld:
    """A world in which nothing changes. It remembers which primitives ran."""

    calls: list[str] = field(default_factory=list)

    def call(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], line: int | None
    ) -> Granted | Refused:
        if name != "look":
            raise InvalidMessage("the call of a primitive that is none")
        self.calls.append(name)
        return Granted("a wall")

    def enter(self, name: str, arguments: Mapping[str, Any], line: int | None) -> None:
        pass

    def leave(self, depth: int, omitted: int, result: Any, error: str | None) -> None:
        pass
