"""What skills act in, without an environment."""

from __future__ import annotations

from speedrunner.workers.call_tree import CallTree, EpisodeRoom
from speedrunner.workers.sandbox.channel import InvalidMessage
from speedrunner.workers.sandbox.skill_process import Call


class StillWorld:
    """A world in which nothing changes. It remembers which primitives ran."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.tree = CallTree("attack", "skill", {}, EpisodeRoom())

    def call(self, asked: Call) -> str:
        if asked.name != "look":
            raise InvalidMessage("the call of a primitive that is none")
        self.calls.append(asked.name)
        return "a wall"
