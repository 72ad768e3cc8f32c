"""Crafter's map and creatures: the same as upstream's, but identical in every process, and faster.

Follows `World` in `crafter/engine.py` and `Object` in `crafter/objects.py` of crafter 1.8.3 (danijar/crafter,
commit e04542a2159f). Upstream keeps the objects of a chunk in sets, ordered by memory addresses, and does its
geometry on arrays of two numbers. Here a chunk keeps its objects in the order in which they entered it, and
creatures compute with integers. Rules and random draws are upstream's own.
"""

# mypy: disable-error-code="import-untyped, misc, no-any-return"
from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from crafter import constants, engine, objects

AREA = (64, 64)
CHUNK = 12
"""Width and height of a chunk in cells; the map's last chunks are cut off."""


class Draws:
    """Single draws from a generator's stream, equal to those of `RandomState` at a fraction of the cost.

    Args:
        bits: the generator below `random`.
        random: the generator with the stream.
    """

    def __init__(self, bits: np.random.MT19937, random: np.random.RandomState) -> None:
        self.uniform = random.random_sample
        self._word = bits.random_raw

    def randint(self, low: int, high: int) -> int:
        """Return a whole number from `low` up to but not including `high`.

        Words of the generator are cut to as many bits as the span needs, until one is within it.
        """
        span = high - low - 1
        if span == 0:
            return low
        mask = (1 << span.bit_length()) - 1
        while (value := self._word() & mask) > span:
            pass
        return low + value


class Chunk(dict[Any, None]):
    """The methods that upstream uses of a set of objects, with the order of insertion."""

    def add(self, obj: Any) -> None:
        """Add an object as the last one."""
        self[obj] = None

    def remove(self, obj: Any) -> None:
        """Remove an object."""
        del self[obj]


class World(engine.World):
    """The map. Every object on it also has its position as integers `x` and `y`."""

    draws: Draws

    def __init__(self) -> None:
        super().__init__(AREA, constants.materials, (CHUNK, CHUNK))

    def reset(self, seed: int | None = None) -> None:
        """Empty the map and seed its random stream."""
        super().reset(0)
        bits = np.random.MT19937()
        self.random = np.random.RandomState(bits)
        self.random.seed(seed)
        self.draws = Draws(bits, self.random)
        self._chunks: defaultdict[tuple[int, ...], Chunk] = defaultdict(Chunk)
        self._spaces: dict[tuple[tuple[int, ...], str], int] = {}

    def add(self, obj: Any) -> None:
        """Put an object on its free cell."""
        obj.x, obj.y = int(obj.pos[0]), int(obj.pos[1])
        obj.pos = np.array((obj.x, obj.y))
        self._obj_map[obj.x, obj.y] = len(self._objects)
        self._objects.append(obj)
        self._chunks[self.chunk_key((obj.x, obj.y))].add(obj)

    def move(self, obj: Any, pos: Sequence[int]) -> None:
        """Move an object to a free cell, unless it has been removed."""
        if obj.removed:
            return
        x, y = int(pos[0]), int(pos[1])
        self._obj_map[x, y] = self._obj_map.item(obj.x, obj.y)
        self._obj_map[obj.x, obj.y] = 0
        if x // CHUNK != obj.x // CHUNK or y // CHUNK != obj.y // CHUNK:
            self._chunks[self.chunk_key((obj.x, obj.y))].remove(obj)
            self._chunks[self.chunk_key((x, y))].add(obj)
        obj.x, obj.y = x, y
        obj.pos = np.array((x, y))

    def __getitem__(self, pos: Sequence[int]) -> tuple[str | None, Any]:
        x, y = pos
        if 0 <= x < AREA[0] and 0 <= y < AREA[1]:
            return self._mat_names[self._mat_map.item(x, y)], self._objects[self._obj_map.item(x, y)]
        return None, None

    def window(self, x: int, y: int, sight: int) -> list[list[tuple[str | None, Any]]]:
        """Return the material and the object of each cell at most `sight` cells away in both directions, row
        by row. Both are `None` beyond the map."""
        left, right = max(x - sight, 0), min(x + sight + 1, AREA[0])
        top, bottom = max(y - sight, 0), min(y + sight + 1, AREA[1])
        nothing: list[tuple[str | None, Any]] = [(None, None)]
        west, east = nothing * (left - x + sight), nothing * (x + sight + 1 - right)
        names, things = self._mat_names, self._objects
        rows = zip(
            self._mat_map[left:right, top:bottom].T.tolist(),
            self._obj_map[left:right, top:bottom].T.tolist(),
            strict=True,
        )
        inside = [
            [*west, *((names[material], things[obj]) for material, obj in zip(*row, strict=True)), *east]
            for row in rows
        ]
        outside = nothing * (2 * sight + 1)
        return [outside] * (top - y + sight) + inside + [outside] * (y + sight + 1 - bottom)

    def __setitem__(self, pos: Sequence[int], material: str) -> None:
        super().__setitem__(pos, material)
        chunk = self.chunk_key((int(pos[0]), int(pos[1])))
        self._spaces = {key: space for key, space in self._spaces.items() if key[0] != chunk}

    def space(self, chunk: tuple[int, int, int, int], material: str) -> int:
        """Return how many cells of a chunk have a material."""
        key = chunk, material
        if key not in self._spaces:
            self._spaces[key] = int(np.count_nonzero(self.mask(*chunk, material)))
        return self._spaces[key]


class Direction(tuple[int, int]):
    """One of the four directions, or none; its opposite is its negative, as for upstream's arrays."""

    __slots__ = ()

    def __neg__(self) -> Direction:
        return Direction((-self[0], -self[1]))


class Nimble:
    """The creatures' most frequent methods, on integers. Comes before upstream's class in the bases."""

    world: World
    x: int
    y: int

    def __init__(self, world: World, *arguments: Any) -> None:
        super().__init__(world, *arguments)  # type: ignore[call-arg]
        self.random = world.draws

    def distance(self, target: Any) -> int:
        """Return the steps between this object and another one or a cell."""
        x, y = (target.x, target.y) if isinstance(target, Nimble) else target
        return abs(x - self.x) + abs(y - self.y)

    def toward(self, target: Nimble, long_axis: bool = True) -> Direction:
        """Return the direction to another object along the longer (or the shorter) of the two offsets."""
        right, down = target.x - self.x, target.y - self.y
        if (abs(right) > abs(down)) == long_axis:
            return Direction(((right > 0) - (right < 0), 0))
        return Direction((0, (down > 0) - (down < 0)))

    def move(self, direction: Sequence[int]) -> bool:
        """Move one step if that cell is free. Returns whether it was."""
        target = self.x + direction[0], self.y + direction[1]
        free: bool = self.is_free(target)  # type: ignore[attr-defined]
        if free:
            self.world.move(self, target)
        return free


class Player(Nimble, objects.Player):
    """The player."""


class Cow(Nimble, objects.Cow):
    """A cow."""


class Zombie(Nimble, objects.Zombie):
    """A zombie."""


class Skeleton(Nimble, objects.Skeleton):
    """A skeleton."""
