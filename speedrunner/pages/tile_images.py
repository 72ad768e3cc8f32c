"""Tiles of worlds as the simulators' own libraries draw them: `minigrid` for BabyAI, `crafter` for Crafter.

The images are made here, from the installed packages; this project contains none of them.
"""

# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from PIL.Image import Image

CELL = 10
"""A tile's side in a picture's own units."""

OVERLAP = 0.25
"""Overlap of a tile with those to its right and below, so that no gap is visible at any scale."""

BABYAI_PIXELS, CRAFTER_PIXELS = 24, 16
"""A tile's side in pixels; Crafter's textures have this size."""

OUTSIDE = (127, 127, 127)
"""Crafter's color of cells beyond the map."""


CREDITS = {
    "babyai": "Tiles drawn by minigrid (Apache-2.0)",
    "crafter": "Tiles of crafter (MIT, © 2021 Danijar Hafner)",
}
"""The source and licence of an environment's tiles, for the pages that contain them."""


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


def tile_symbols(env: str, names: Iterable[str]) -> Markup:
    """Return the SVG symbols of tiles, which pictures refer to as `w-NAME`."""
    symbol = Markup('<symbol id="w-{}"><image width="{}" height="{}" href="{}"/></symbol>')
    side = CELL + OVERLAP
    found = (symbol.format(name, side, side, tile_image(env, name)) for name in sorted(set(names)))
    return Markup("").join(found)


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
