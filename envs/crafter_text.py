"""Crafter in words: the player's state, belongings and view (paper, Appendix D.3).

Follows the wording of `balrog/environments/crafter/env.py` of balrog-ai/BALROG, commit af7d1f17e0de, with
precise locations. BALROG's window is 9 x 7 cells, and it shows nothing near the west and north edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from envs.text_env import steps

if TYPE_CHECKING:
    from envs.crafter_game import Game

View = Literal["nearest", "all"]
RIPE = "ripe "
"""Stands before the name of a plant that can be eaten, as upstream's picture shows and the paper's text does
not."""

BEGIN, END = "<<OBSERVATION_BEGIN>>", "<<OBSERVATION_END>>"
SLEEPING = "You are sleeping, and will not be able to take actions until energy is full."
DEAD = "You died."

VITALS = ("health", "food", "drink", "energy")
SIGHT = 4
"""Cells that the player sees in each direction."""
OUTSIDE = "out"
"""A snapshot's name for a cell beyond the map."""


def snapshot(game: Game) -> dict[str, Any]:
    """Return the player's state, belongings and view as plain JSON values.

    `window` has nine rows from north to south, each with nine names from west to east, joined by commas: the
    creature or thing on a cell, else the cell's material, or `out` beyond the map. `pos` and `facing` are [x,
    y], where x grows to the east and y to the south.
    """
    player, inventory = game.player, game.player.inventory
    x, y = map(int, player.pos)
    ahead = int(player.facing[0]), int(player.facing[1])
    return {
        **{vital: inventory[vital] for vital in VITALS},
        "inventory": {name: n for name, n in inventory.items() if n and name not in VITALS},
        "pos": [x, y],
        "facing": list(ahead),
        "facing_target": _name_cell(*game.world[x + ahead[0], y + ahead[1]]),
        "sleeping": bool(player.sleeping),
        "window": [",".join(_name_cell(*cell) for cell in row) for row in _cells_in_sight(game)],
        "achievements": sorted(name for name, times in player.achievements.items() if times),
        "step": game.step_count,
        "daylight": round(float(game.world.daylight), 6),
    }


def textures(game: Game) -> list[list[str]]:
    """Return the names of upstream's textures for the cells of a snapshot's `window`, row by row: of the
    material, and after a dot of the creature or thing on it."""
    return [
        [f"{material or OUTSIDE}.{obj.texture}" if obj else material or OUTSIDE for material, obj in row]
        for row in _cells_in_sight(game)
    ]


def _cells_in_sight(game: Game) -> list[list[tuple[str | None, Any]]]:
    """Return material and object of each cell in sight, row by row. Both are `None` beyond the map."""
    x, y = map(int, game.player.pos)
    sight = range(-SIGHT, SIGHT + 1)
    return [[game.world[x + right, y + down] for right in sight] for down in sight]


def describe(seen: Mapping[str, Any], view: View = "nearest") -> str:
    """Describe a snapshot in words.

    Args:
        seen: a `snapshot`.
        view: "nearest" lists the nearest cell of each kind, the nearest kind first; "all" lists every cell
            but the player's, column by column from the west, names ripe plants, and adds what is unlocked.
            Among equally near cells the western comes first, then the northern.
    """
    lines = [BEGIN]
    if seen["sleeping"]:
        lines.append(SLEEPING)
    elif seen["health"] <= 0:
        lines.append(DEAD)
    lines += ["Your status:", *(f"- {vital}: {seen[vital]}/9" for vital in VITALS)]
    if view == "all":
        unlocked = ", ".join(name.replace("_", " ").title() for name in seen["achievements"])
        lines.append(f"You have unlocked: {unlocked or 'nothing yet'}.")
    if seen["inventory"]:
        lines += ["Your inventory:", *(f"- {name}: {number}" for name, number in seen["inventory"].items())]
    else:
        lines.append("You have nothing in your inventory.")

    cells, front = list(_cells(seen["window"])), seen["facing_target"]
    if view == "nearest":
        front = front.removeprefix(RIPE)
        nearest: dict[str, tuple[str, int, int]] = {}
        for cell in sorted(cells, key=lambda cell: abs(cell[1]) + abs(cell[2])):
            nearest.setdefault(cell[0].removeprefix(RIPE), cell)
        cells = [(name, right, down) for name, (_, right, down) in nearest.items()]
    if cells:
        lines += ["You see:", *(f"- {name} {_offset(right, down)}" for name, right, down in cells)]
    else:
        lines.append("You see nothing away from you.")
    return "\n".join([*lines, f"You face {'nothing' if front == OUTSIDE else front} at your front.", END])


def _name_cell(material: str | None, obj: Any) -> str:
    ripe = RIPE * (obj is not None and obj.texture == "plant-ripe")
    return ripe + type(obj).__name__.lower() if obj else material or OUTSIDE


def _cells(window: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the cells to the east and the cells to the south of everything in sight except the
    player."""
    rows = [row.split(",") for row in window]
    for right in range(-SIGHT, SIGHT + 1):
        for down in range(-SIGHT, SIGHT + 1):
            name = rows[down + SIGHT][right + SIGHT]
            if name != OUTSIDE and (right or down):
                yield name, right, down


def _offset(right: int, down: int) -> str:
    parts = []
    if down:
        parts.append(steps(abs(down), "south" if down > 0 else "north"))
    if right:
        parts.append(steps(abs(right), "east" if right > 0 else "west"))
    return " and ".join(parts)
