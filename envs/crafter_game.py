"""One game of Crafter: upstream's rules and random stream, stepped without drawing a picture.

Follows `crafter/env.py` of crafter 1.8.3 (danijar/crafter, commit e04542a2159f).
"""

# mypy: disable-error-code="import-untyped, no-any-return"
from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from envs.crafter_terrain import generate
from envs.crafter_world import AREA, Chunk, Cow, Player, Skeleton, World, Zombie

REACH = 18
"""Objects at fewer steps than this from the player act; the others do nothing."""
BALANCE_EVERY = 10
"""Ticks between two balancings of the chunks' creatures."""
NIGHT_DRAWS = 63 * 49
"""Number of draws that upstream's rendering takes from the world's stream in a tick of darkness: one for each
pixel of the landscape in its picture of 64x64 (9x7 cells of 7x7 pixels)."""


class Population(NamedTuple):
    """The target number of creatures of one kind in a chunk, and how the chunk reaches it.

    Attributes:
        kind: the creature's class.
        material: the material on which it lives.
        fewest, most: the target numbers.
        space: minimum cells of that material; with fewer, no creature is added.
        spawn, despawn: probabilities that one appears if there are too few, or disappears if too many.
        spawn_distance, despawn_distance: least steps from the player at which one appears, or disappears.
    """

    kind: type[Any]
    material: str
    fewest: int
    most: int
    space: int
    spawn: float
    despawn: float
    spawn_distance: int
    despawn_distance: int


class Game:
    """Plays one world after another.

    Args:
        zombie_frequency: scales a chunk's target number of zombies and how fast they appear and disappear; 1
            is upstream's game, 0 has none (paper, Appendix D.6).

    Attributes:
        world: map, objects and random stream.
        player: the player, with inventory and achievements.
        step_count: ticks since the reset.
    """

    player: Any

    def __init__(self, zombie_frequency: float = 1.0) -> None:
        self._zombie_frequency = zombie_frequency
        self.world = World()

    def reset(self, seed: int) -> None:
        """Start the first episode of upstream's `Env(seed=seed)`."""
        world = self.world
        world.reset(hash((seed, 1)) % (2**31 - 1))
        self.step_count = 0
        world.daylight = daylight(0)
        self.player = Player(world, (AREA[0] // 2, AREA[1] // 2))
        world.add(self.player)
        generate(world, self.player)
        if self._zombie_frequency == 0:
            for obj in world.objects:
                if isinstance(obj, Zombie):
                    world.remove(obj)
        self._watch_nearby()

    def step(self, action: str) -> None:
        """Advance by one tick. `action` is one of upstream's names."""
        world, player = self.world, self.player
        self.step_count += 1
        world.daylight = daylight(self.step_count)
        acting = self._find_near_objects()
        player.action = action
        player.update()
        x, y = player.x, player.y
        for obj in acting:
            if abs(obj.x - x) + abs(obj.y - y) < REACH:
                obj.update()
        if self.step_count % BALANCE_EVERY == 0:
            self._balance()
            self._watch_nearby()
        if world.daylight < 0.5:
            world.random.random_sample(NIGHT_DRAWS)

    def _watch_nearby(self) -> None:
        """List the objects that can come within reach before the next balancing; those farther away do not
        move."""
        player = self.player
        reach = REACH + BALANCE_EVERY
        self._around = [
            obj for obj in self.world.objects if obj is not player and player.distance((obj.x, obj.y)) < reach
        ]
        self._listed = len(self.world._objects)

    def _find_near_objects(self) -> list[Any]:
        """Return the objects that are near or new, in the order in which they entered the world."""
        self._around += self.world._objects[self._listed :]
        self._listed = len(self.world._objects)
        self._around = [obj for obj in self._around if not obj.removed]
        return self._around

    def _balance(self) -> None:
        light = self.world.daylight
        frequency = self._zombie_frequency
        zombies = int(frequency * (3.5 - 3 * light))
        come, go = min(1.0, 0.3 * frequency), min(1.0, 0.4 * frequency)
        populations = (
            Population(Zombie, "grass", zombies, zombies, 50, come, go, 6, 0),
            Population(Skeleton, "path", 1, 2, 6, 0.1, 0.1, 7, 7),
            Population(Cow, "grass", 1, int(1.5 + light), 30, 0.01, 0.1, 5, 5),
        )
        for chunk, members in self.world.chunks.items():
            for population in populations:
                self._balance_population(chunk, members, population)

    def _balance_population(
        self, chunk: tuple[int, int, int, int], members: Chunk, population: Population
    ) -> None:
        world, draws = self.world, self.world.draws
        creatures = [obj for obj in members if type(obj) is population.kind]
        enough_space = world.space(chunk, population.material) >= population.space
        if enough_space and len(creatures) < population.fewest:
            if draws.uniform() < population.spawn:
                cells = np.argwhere(world.mask(*chunk, population.material))
                column, row = cells[draws.randint(0, len(cells))].tolist()
                place = chunk[0] + column, chunk[2] + row
                free = world[place][1] is None
                if free and self.player.distance(place) >= population.spawn_distance:
                    companions = () if population.kind is Cow else (self.player,)
                    world.add(population.kind(world, place, *companions))
        elif len(creatures) > population.most and draws.uniform() < population.despawn:
            creature = creatures[draws.randint(0, len(creatures))]
            if self.player.distance(creature) >= population.despawn_distance:
                world.remove(creature)


@cache
def daylight(step: int) -> np.float64:
    """Return the daylight in a tick, from 0 to 1; a day has 300 ticks."""
    progress = (step / 300) % 1 + 0.3
    return 1 - np.abs(np.cos(np.pi * progress)) ** 3
