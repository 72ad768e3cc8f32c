"""Pictures of worlds, in parts: playback sends only the parts that change.

Their tiles are drawn by `minigrid` for BabyAI and `crafter` for Crafter. The images are made here, from the
installed packages; this project contains none of them.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from markupsafe import Markup

from speedrunner.config.console import visible

if TYPE_CHECKING:
    from PIL.Image import Image

CELL = 10
"""A tile's side in a picture's own units. playback.js draws it a bit larger, so that no gap is visible."""

BABYAI_PIXELS, CRAFTER_PIXELS = 24, 16
"""A tile's side in pixels; Crafter's textures have this size."""

OUTSIDE = (127, 127, 127)
"""Crafter's color of cells beyond the map."""


CREDITS = {
    "babyai": "Tiles drawn by minigrid (Apache-2.0)",
    "crafter": "Tiles of crafter (MIT, © 2021 Danijar Hafner)",
}
"""The source and licence of an environment's tiles, for the pages that contain them."""

Place = tuple[float, float]


class Picture(msgspec.Struct, frozen=True):
    """A world at one moment.

    Attributes:
        kind: the environment, and the picture's class in the stylesheet.
        size: width and height in the picture's own units.
        places: the upper left corner of each part. Pictures of one world share them.
        label: the picture in words.
        parts: the SVG inside each part.
    """

    kind: str
    size: Place
    places: tuple[Place, ...]
    label: str
    parts: tuple[Markup, ...]

    @property
    def tiles(self) -> set[str]:
        """Return the names of the tiles that it refers to."""
        return {name for part in set(self.parts) for name in re.findall(r'href="#w-([^"]+)"', part)}

    def draw(self) -> Markup:
        """Return the picture as one inline SVG element with one group for each part."""
        head = Markup('<svg class="picture {}" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">')
        group = Markup('<g transform="translate({:g} {:g})">{}</g>')
        parts = (group.format(*place, part) for place, part in zip(self.places, self.parts, strict=True))
        return head.format(self.kind, *self.size, self.label) + Markup("").join(parts) + Markup("</svg>")


@lru_cache(maxsize=4096)
def _use(tile: str) -> Markup:
    return Markup('<use href="#w-{}"/>').format(tile)


@lru_cache(maxsize=64)
def _cells(columns: int, rows: int) -> tuple[Place, ...]:
    """Return the places of a grid's cells row by row, of the layer over them, and of the line below."""
    cells = [(CELL * column, CELL * row) for row in range(rows) for column in range(columns)]
    return (*cells, (0, 0), (0, CELL * rows + 2))


@lru_cache(maxsize=256)
def _draw_items(items: tuple[tuple[str, str], ...], columns: int) -> Markup:
    """Draw tiles with a short text next to each, in rows below a grid."""
    item = Markup('<use href="#w-{}" x="{}" y="{}"/><text x="{}" y="{}">{}</text>')
    across = max(columns * CELL // 15, 1)
    return Markup("").join(
        item.format(
            tile,
            place % across * 15,
            place // across * 12,
            place % across * 15 + 10.5,
            place // across * 12 + 7,
            text,
        )
        for place, (tile, text) in enumerate(items)
    )


def join_words(parts: Iterable[str]) -> str:
    """Return words as an enumeration; "nothing" if there are none."""
    *most, last = list(parts) or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last


# BabyAI

HEADINGS = ("east", "south", "west", "north")
"""By `agent_dir`, quarters of a turn clockwise."""
ROOM = 7
"""Cells from one wall of a room to the opposite one."""


def draw_babyai(seen: Mapping[str, Any]) -> Picture:
    """Draw a snapshot of BabyAI."""
    columns, rows = seen["width"], seen["height"]
    tiles = list(_empty_rooms(columns, rows))
    for thing in seen["objects"]:
        column, row = thing["pos"]
        tiles[row * columns + column] = _name_tile(thing)
    column, row = seen["agent_pos"]
    tiles[row * columns + column] += f".agent-{seen['agent_dir']}"
    carried = seen["carrying"]
    items = [(f"{carried[0]}-{carried[1]}", "carried")] if carried else []
    below = _draw_items(tuple(items), columns) or Markup('<text y="7">carries nothing</text>')
    carries = f"a {' '.join(carried[::-1])}" if carried else "nothing"
    label = (
        f"A grid of {columns} by {rows} cells. The agent in column {column}, row {row} looks "
        f"{HEADINGS[seen['agent_dir']]} and carries {carries}."
    )
    return Picture(
        "babyai",
        (columns * CELL, rows * CELL + 13),
        _cells(columns, rows),
        visible(label),
        (*map(_use, tiles), Markup(""), below),
    )


@lru_cache(maxsize=64)
def _empty_rooms(columns: int, rows: int) -> tuple[str, ...]:
    """Return the tiles of a level without things: outer walls, and walls between several rooms."""
    xs, ys = _walls(columns), _walls(rows)
    return tuple(
        "wall-grey" if column in xs or row in ys else "floor"
        for row in range(rows)
        for column in range(columns)
    )


def _walls(count: int) -> set[int]:
    between = range(ROOM, count - 1, ROOM) if (count - 1) % ROOM == 0 else ()
    return {0, *between, count - 1}


def _name_tile(thing: Mapping[str, Any]) -> str:
    name = f"{thing['type']}-{thing['color']}"
    if thing["type"] != "door":
        return name
    return f"{name}-{'open' if thing['open'] else 'locked' if thing['locked'] else 'closed'}"


# Crafter

VITALS = ("health", "food", "drink", "energy")
MOST = 9
"""Maximum of each vital."""
ITEM_ROWS = 3
"""Rows of vitals and belongings below the map."""
VEIL = 0.6
"""Opacity of the dark layer in the darkest night."""
NIGHT = 0.5
"""Daylight below which it is reported as night."""
FACINGS = [[1, 0], [0, 1], [-1, 0], [0, -1]]
"""In the order of `HEADINGS`."""


def draw_crafter(seen: Mapping[str, Any], textures: Sequence[Sequence[str]]) -> Picture:
    """Draw a snapshot of Crafter, with the textures of its window."""
    rows, columns = len(textures), len(textures[0])
    inventory = seen["inventory"]
    items = [(name, str(seen[name])) for name in VITALS]
    items += [(name, str(count)) for name, count in inventory.items()]
    parts = [_use(name) for row in textures for name in row]
    return Picture(
        "crafter",
        (columns * CELL, rows * CELL + 2 + 12 * ITEM_ROWS),
        _cells(columns, rows),
        visible(_describe_crafter(seen)),
        (*parts, _draw_night(seen["daylight"], columns, rows), _draw_items(tuple(items), columns)),
    )


def _draw_night(daylight: float, columns: int, rows: int) -> Markup:
    veil = round(VEIL * (1 - daylight) ** 2, 2)
    if veil <= 0.02:
        return Markup("")
    dark = Markup('<rect width="{}" height="{}" fill="#001040" opacity="{}"/>')
    return dark.format(columns * CELL, rows * CELL, veil)


def _describe_crafter(seen: Mapping[str, Any]) -> str:
    has = join_words(f"{count} {name}" for name, count in seen["inventory"].items())
    state = "sleeps" if seen["sleeping"] else "is dead" if seen["health"] <= 0 else "stands"
    return (
        f"Crafter by {'night' if seen['daylight'] < NIGHT else 'day'}, step {seen['step']}. The player "
        f"{state}, facing {seen['facing_target']} in the {HEADINGS[FACINGS.index(seen['facing'])]}, with "
        f"{has}; {join_words(f'{vital} {seen[vital]}' for vital in VITALS)} of {MOST}."
    )


# Tiles


@lru_cache(maxsize=4096)
def tile_image(env: str, name: str) -> str:
    """Return a tile as the data URI of a PNG image.

    Args:
        env: `babyai` or `crafter`.
        name: for BabyAI `floor`, `wall-grey` or a thing such as `door-red-open`, with `.agent-0` (looks
            east, then clockwise) if the agent is there. For Crafter names of its textures, the lowest first:
            `grass.cow`.

    Raises:
        KeyError: the library has no such tile.
    """
    content = io.BytesIO()
    _DRAWN[env](name).save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def _babyai(name: str) -> Image:
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import WorldObj
    from PIL import Image

    thing, _, agent = name.partition(".agent-")
    obj = None
    if thing != "floor":
        kind, color, *state = thing.split("-")
        number = {"open": 0, "closed": 1, "locked": 2}[state[0]] if state else 0
        obj = WorldObj.decode(OBJECT_TO_IDX[kind], COLOR_TO_IDX[color], number)
    looks = int(agent) if agent else None
    pixels = Grid.render_tile(obj, agent_dir=looks, tile_size=BABYAI_PIXELS)
    return Image.fromarray(pixels.astype("uint8"))


def _crafter(name: str) -> Image:
    from PIL import Image

    size = (CRAFTER_PIXELS, CRAFTER_PIXELS)
    drawn = Image.new("RGBA", size, (0, 0, 0, 0))
    for texture in name.split("."):
        if texture == "out":
            drawn.paste(OUTSIDE, (0, 0, *size))
            continue
        pixels = _textures().get(texture, size)  # [column, row, color]
        drawn.alpha_composite(Image.fromarray(pixels.transpose((1, 0, 2))).convert("RGBA"))
    return drawn


@cache
def _textures() -> Any:
    from crafter import constants, engine

    return engine.Textures(constants.root / "assets")


_DRAWN = {"babyai": _babyai, "crafter": _crafter}
