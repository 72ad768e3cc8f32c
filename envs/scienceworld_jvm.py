"""The ScienceWorld simulator (scienceworld 1.2.3, allenai/ScienceWorld) in a Java process."""

from __future__ import annotations

import json
from typing import Any

from envs.java_process import JavaSimulator, SimulatorFailed

UNLISTED = ("air", "terminal", "anode", "cathode")
"""Objects that viewers do not list."""

Json = dict[str, Any]


class Simulator(JavaSimulator):
    """One Java process with one simulator of ScienceWorld. See `JavaSimulator`."""

    title = "ScienceWorld"
    package = "scienceworld"  # its folder has a table of types, which the simulator would otherwise write
    jar = "scienceworld.jar"
    interface = "scienceworld.runtime.pythonapi.PythonInterface"
    heap_mb = 256  # with this heap the process stays below 400 MB, whichever task it plays

    def __init__(self, java: str | None = None) -> None:
        super().__init__(java)
        self._doors: list[tuple[str, str, Any]] = []

    def load(self, task: str, variation: int) -> None:
        """Create a world, without simplifications and without a gold path. Raises `SimulatorFailed`."""
        self._doors.clear()
        error = self._ask("load", task, variation, "", False)
        if error:
            raise SimulatorFailed(f"ScienceWorld cannot load {task}, variation {variation}: {error}")

    def step(self, phrase: str) -> str:
        """Send one line to the parser and return its reply. Raises `SimulatorFailed`."""
        return str(self._ask("step", phrase))

    def look(self) -> str:
        """Describe the agent's location at no cost. Raises `SimulatorFailed`."""
        return str(self._ask("freeActionLook"))

    def task_description(self) -> str:
        """Return the task with the simulator's heading. Raises `SimulatorFailed`."""
        return str(self._ask("freeActionTaskDesc"))

    def score(self) -> float:
        """Return the score in [-1, 1], which each step updates. Raises `SimulatorFailed`."""
        return float(self._ask("getScore"))

    def moves(self) -> int:
        """Return how many ticks the world has advanced since it was loaded. Raises `SimulatorFailed`."""
        return int(self._ask("getNumMoves"))

    def house(self) -> Json:
        """Return rooms, doors, the agent's room and inventory; see `ScienceWorld.house`. It takes about 50
        ms. Raises `SimulatorFailed`."""
        if not self._doors:
            self._doors = self._guard("getPortals", self._find_doors)
        universe = json.loads(self._ask("getObjectTree", ""))
        named = {room for one, other, _ in self._doors for room in (one, other)}
        place, agent, rooms = "", Json(contents={}), dict[str, list[str]]()
        for room in _contents(universe):
            things = _contents(room)
            if here := next((each for each in things if each["name"] == "agent"), None):
                place, agent = room["name"], here
            if here or room["name"] in named:
                rooms[room["name"]] = [_describe_thing(each) for each in things if each is not here]
        return {
            "room": place,
            "rooms": rooms,
            "doors": [[one, other, self._guard("isOpen", door.isOpen)] for one, other, door in self._doors],
            "inventory": [_describe_thing(each) for part in _contents(agent) for each in _contents(part)],
        }

    def _find_doors(self) -> list[tuple[str, str, Any]]:
        """Return each door between two rooms once, with their names."""
        universe = self._interface.agentInterface().get().universe()
        found: dict[tuple[str, ...], tuple[str, str, Any]] = {}
        rooms = universe.getContainedObjects(False).iterator()
        while rooms.hasNext():
            doors = rooms.next().getPortals(False).iterator()
            while doors.hasNext():
                door = doors.next()
                one, other = door.connectsFrom().name(), door.connectsTo().name()
                found[tuple(sorted((one, other)))] = one, other, door.propPortal().get()
        return list(found.values())


def _contents(thing: Json) -> list[Json]:
    """Return what is in a room or thing, without air and electrical terminals."""
    return [
        each
        for each in thing["contents"].values()
        if not each["isDeleted"] and each["name"].removesuffix(" 1").removesuffix(" 2") not in UNLISTED
    ]


def _describe_thing(thing: Json) -> str:
    inside = ", ".join(map(_describe_thing, _contents(thing)))
    return f"{thing['name']} ({inside})" if inside else str(thing["name"])
