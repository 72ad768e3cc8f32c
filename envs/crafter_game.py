"""One game of Crafter: upstream's, the same in every process, and without its picture.

Overrides parts of package `crafter` 1.8.3 (danijar/crafter, commit e04542a2159f).
"""

# mypy: disable-error-code="import-untyped, misc"
from __future__ import annotations

from collections import defaultdict
from typing import Any

import crafter
from crafter import constants, engine, objects

NIGHT_DRAWS = 63 * 49
"""Number of draws that upstream's rendering takes from the world's stream in a tick of darkness: one for each
pixel of the landscape in its picture of 64x64 (9x7 cells of 7x7 pixels)."""


class Chunk(dict[Any, None]):
    """The methods that upstream uses of a set of objects, with the order of insertion."""

    def add(self, obj: Any) -> None:
        """Add an object as the last one."""
        self[obj] = None

    def remove(self, obj: Any) -> None:
        """Remove an object."""
        del self[obj]


class World(engine.World):
    """Upstream's map, but each chunk keeps its objects in the order in which they entered it. Upstream keeps
    them in sets, ordered by memory addresses."""

    def reset(self, seed: int | None = None) -> None:
        """Empty the map and seed its random stream."""
        super().reset(seed)
        self._chunks: defaultdict[tuple[int, ...], Chunk] = defaultdict(Chunk)


class Game(crafter.Env):
    """Plays one world after another.

    Args:
        zombie_frequency: scales a chunk's target number of zombies and how fast they appear and disappear; 1
            is upstream's game, 0 has none (paper, Appendix D.6).

    Attributes:
        world: map, objects and random stream.
    """

    def __init__(self, zombie_frequency: float = 1.0) -> None:
        super().__init__(length=None, seed=0)
        self.world = self._world = World(self._area, constants.materials, (12, 12))
        self._sem_view = lambda: None
        self._zombie_frequency = zombie_frequency

    @property
    def player(self) -> Any:
        """Return the player, with inventory and achievements."""
        return self._player

    @property
    def step_count(self) -> int:
        """Return the ticks since the start."""
        return int(self._step)

    def start(self, seed: int) -> None:
        """Start the first episode of upstream's `Env(seed=seed)`."""
        self._seed, self._episode = seed, 0
        self.reset()
        if self._zombie_frequency == 0:
            for obj in self.world.objects:
                if isinstance(obj, objects.Zombie):
                    self.world.remove(obj)

    def act(self, action: str) -> None:
        """Advance by one tick. `action` is one of upstream's names."""
        self.step(constants.actions.index(action))

    def render(self, size: Any = None) -> None:
        """Take from the random stream what a picture would, and draw none."""
        if self.world.daylight < 0.5:
            self.world.random.random_sample(NIGHT_DRAWS)

    def _balance_object(self, chunk: Any, objs: Any, cls: type[Any], *rest: Any) -> None:
        if cls is objects.Zombie:
            *places, spawn, despawn, create, find_targets = rest
            frequency = self._zombie_frequency
            rest = (
                *places,
                min(1.0, spawn * frequency),
                min(1.0, despawn * frequency),
                create,
                lambda count, space: tuple(frequency * target for target in find_targets(count, space)),
            )
        super()._balance_object(chunk, objs, cls, *rest)
