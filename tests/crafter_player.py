"""A player that knows its way to stone: it reads observations and calls primitives, and nothing else."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from envs import TextEnv

MOVES = {"move_north": (0, -1), "move_south": (0, 1), "move_east": (1, 0), "move_west": (-1, 0)}
WALKABLE = {"grass", "sand", "path"}
LINE = re.compile(r"- (\w+) (?:(\d) steps? (north|south))?(?: and )?(?:(\d) steps? (east|west))?$")

Cell = tuple[int, int]


class Explorer:
    """Collects wood, places a table, makes a pickaxe, and mines stone.

    Args:
        env: a Crafter environment with `view="all"`, just reset.
        observation: its first observation.
    """

    def __init__(self, env: TextEnv, observation: str) -> None:
        self.env = env
        self.here: Cell = (0, 0)
        self.known: dict[Cell, str] = {}
        self.inventory: dict[str, int] = {}
        self.front = ""
        self.look(observation)

    def play(self, actions: int) -> None:
        """Play until there is stone, the player is dead, or so many actions are used up."""
        plan = self.plan()
        for _ in range(actions):
            action = next(plan, None)
            if action is None or self.env.done:
                return
            ahead = self.ahead(action)
            if ahead and self.known.get(ahead) in WALKABLE:
                self.here = ahead
            self.env.call(action)
            if not self.env.done:
                self.look(str(self.env.call("get_current_observation")))

    def plan(self) -> Iterator[str]:
        """Yield the next action, again and again."""
        while self.inventory.get("wood", 0) < 5:
            yield from self.use("tree")
        while "table" not in self.known.values():
            yield from ["place_table"] if self.front in WALKABLE else [next(self.towards(WALKABLE))]
        yield "make_wood_pickaxe"
        while "stone" not in self.inventory:
            yield from self.use("stone")

    def use(self, kind: str) -> Iterator[str]:
        """Yield one action on the way to using something of this kind."""
        if self.front in (kind, "zombie", "skeleton"):
            yield "do"
        else:
            yield next(self.towards({kind}), "noop")

    def towards(self, kinds: set[str]) -> Iterator[str]:
        """Yield the first step of the shortest way to one of the kinds, or else to what is unknown."""
        for wanted in (kinds, {"unknown"}):
            seen, queue = {self.here}, deque([(self.here, "")])
            while queue:
                cell, first = queue.popleft()
                for move, (right, down) in MOVES.items():
                    other = cell[0] + right, cell[1] + down
                    if self.known.get(other, "unknown") in wanted:
                        yield first or move
                        return
                    if other not in seen and self.known.get(other) in WALKABLE:
                        seen.add(other)
                        queue.append((other, first or move))

    def ahead(self, action: str) -> Cell | None:
        """Return the cell that a move leads to."""
        if action not in MOVES:
            return None
        return self.here[0] + MOVES[action][0], self.here[1] + MOVES[action][1]

    def look(self, observation: str) -> None:
        """Take an observation in."""
        before, _, after = observation.partition("You see:\n")
        self.inventory = {name: int(n) for name, n in re.findall(r"- (\w+): (\d)$", before, re.MULTILINE)}
        self.known[self.here] = "path"
        for line in after.splitlines():
            if found := LINE.match(line):
                name, down, north, right, west = found.groups("")
                x = int(right or 0) * (-1 if west == "west" else 1)
                y = int(down or 0) * (-1 if north == "north" else 1)
                self.known[self.here[0] + x, self.here[1] + y] = name
        self.front = re.findall(r"You face (\w+) at your front", observation)[0]
