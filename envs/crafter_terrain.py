"""Crafter's terrain and first creatures: upstream's worlds, number for number, from compiled loops.

Follows `crafter/worldgen.py` of crafter 1.8.3 (danijar/crafter, commit e04542a2159f). Simplex noise is
opensimplex's own function. numba compiles it and the two loops around it. Without numba they run in plain
Python, several hundred times slower, with the same result.
"""

# mypy: disable-error-code="import-untyped, misc, untyped-decorator"
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from crafter import constants
from numba import njit
from numpy.typing import NDArray
from opensimplex import OpenSimplex
from opensimplex.internals import _noise3

from envs.crafter_world import AREA, Cow, Skeleton, World, Zombie

ORES_AND_TREES = {"coal": 0.85, "iron": 0.75, "diamond": 0.994, "tree": 0.8}
CREATURES = {Cow: 0.985, Zombie: 0.993, Skeleton: 0.95}
"""Thresholds: where a thing or creature is possible, it appears if a draw from 0 to 1 exceeds its number."""
MOST_DRAWS = 6
"""Most draws of one cell: three for an ore and three for a creature."""


def generate(world: World, player: Any) -> None:
    """Fill an empty world that has the player in it, as upstream does from the same state of its stream."""
    simplex = OpenSimplex(seed=world.random.randint(0, 2**31 - 1))
    x, y = np.indices(AREA)
    distance = np.sqrt((x - player.x) ** 2 + (y - player.y) ** 2)
    before = world.random.get_state(legacy=False)
    draws = world.random.random_sample(MOST_DRAWS * x.size)

    materials, tunnels, candidates = _landscape(partial(_noise, simplex), x, y, distance)
    chosen = np.full(AREA, -1)
    used = _choose(candidates, np.array([*ORES_AND_TREES.values()]), draws, 0, chosen)
    for number, material in enumerate(ORES_AND_TREES):
        materials[chosen == number] = world._mat_ids[material]
    world._mat_map[:] = materials

    grass, path, sand = (materials == world._mat_ids[name] for name in ("grass", "path", "sand"))
    homes = np.stack([grass & (distance > 3), (grass | path | sand) & (distance > 10), path & tunnels])
    chosen[:] = -1
    used = _choose(homes, np.array([*CREATURES.values()]), draws, used, chosen)
    world.random.set_state(before)
    world.random.random_sample(used)
    kinds = list(CREATURES)
    for column, row in np.argwhere(chosen >= 0).tolist():
        kind = kinds[chosen[column, row]]
        world.add(kind(world, (column, row), *(() if kind is Cow else (player,))))


def _landscape(noise: Any, x: Any, y: Any, distance: Any) -> tuple[Any, Any, Any]:
    """Return everything that depends on noise alone: the materials, which paths are tunnels, and where each
    of `ORES_AND_TREES` is possible."""
    ids = {name: number for number, name in enumerate(constants.materials, start=1)}
    everywhere = np.ones(AREA, np.bool_)
    start = 1 / (1 + np.exp(-(4 - distance + 2 * noise(x / 3, y / 3, 8, everywhere))))
    water = noise(x / 15, y / 15, 3, everywhere) + 0.15 * noise(x / 5, y / 5, 3, everywhere) + 0.1
    water -= 2 * start
    mountain = (noise(x / 15, y / 15, 0, everywhere) + 0.3 * noise(x / 5, y / 5, 0, everywhere)) / 1.3
    mountain -= 4 * start + 0.3 * water

    meadow = start > 0.5
    rock = ~meadow & (mountain > 0.15)
    deep = rock & (mountain > 0.3)
    caves = noise(x / 7, y / 7, 6, deep) > 0.15
    across = noise(2 * x / 3, y / 5 / 3, 7, rock & ~caves) > 0.4
    down = noise(x / 5 / 3, 2 * y / 3, 7, rock & ~caves & ~across) > 0.4
    solid = rock & ~caves & ~across & ~down
    lava = noise(x / 5, y / 5, 6, solid & deep) > 0.35
    lowland = ~meadow & ~rock
    beach = noise(x / 9, y / 9, 4, lowland & (water > 0.25) & (water <= 0.35)) > -0.2
    lake = lowland & ~beach & (water > 0.3)
    plain = lowland & ~beach & ~lake

    materials = np.full(AREA, ids["grass"], np.uint8)
    for name, cells in (("stone", solid), ("path", rock & ~solid), ("lava", lava)):
        materials[cells] = ids[name]
    materials[beach], materials[lake] = ids["sand"], ids["water"]
    coal = noise(x / 8, y / 8, 1, solid) > 0
    iron = noise(x / 6, y / 6, 2, solid) > 0.4
    trees = noise(x / 7, y / 7, 5, plain) > 0
    return materials, across | down, np.stack([coal, iron, solid & (mountain > 0.18), trees])


def _noise(simplex: OpenSimplex, x: Any, y: Any, z: int, where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return simplex noise where requested, and a number below all noise elsewhere."""
    values = np.full(AREA, -np.inf)
    values[where] = _noise_at(x[where], y[where], z, simplex._perm, simplex._perm_grad_index3)
    return values


@njit(cache=True)
def _noise_at(x: Any, y: Any, z: int, perm: Any, gradients: Any) -> NDArray[np.float64]:
    values = np.empty(x.size)
    for point in range(x.size):
        values[point] = _noise3(x[point], y[point], z, perm, gradients)
    return values


@njit(cache=True)
def _choose(candidates: Any, thresholds: Any, draws: Any, used: int, chosen: Any) -> int:
    """Choose for each cell, column by column, the first candidate with a draw above its threshold. Returns
    how many draws have been used."""
    for x in range(chosen.shape[0]):
        for y in range(chosen.shape[1]):
            for number in range(thresholds.size):
                if candidates[number, x, y]:
                    used += 1
                    if draws[used - 1] > thresholds[number]:
                        chosen[x, y] = number
                        break
    return used
