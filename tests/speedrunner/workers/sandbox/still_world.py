"""What skills act in, without an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speedrunner.workers.call_tree import CallTree, EpisodeRoom
from speedrunner.workers.sandbox.channel import InvalidMessage


class StillWorld:
    """A world in which nothing changes. It remembers which primitives ran."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.tree = CallTree("attack", "skill", {}, EpisodeRoom())

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], line: int | None) -> str:
        if name != "look":
            raise InvalidMessage("the call of a primitive that is none")
        self.calls.append(name)
        return "a wall"
