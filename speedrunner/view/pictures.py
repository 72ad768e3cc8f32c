"""Draw snapshots of worlds in simple shapes; one inline SVG each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from itertools import groupby
from typing import Any

from markupsafe import Markup

from speedrunner.console import visible

SYMBOLS = Markup((files(__package__) / "symbols.svg").read_text(encoding="utf-8"))
"""The shapes, which a page with pictures includes once; the element's class is `symbols`."""

CELL = 10
"""A cell's side in a picture's own units."""
OVERLAP = 0.5
"""Overlap of the ground with later shapes, so that no gap is visible at any scale."""


def picture(env: str, snapshot: Mapping[str, Any]) -> Markup:
    """Draw an environment's snapshot.

    Args:
        env: one of `PICTURED`.
        snapshot: as the environment's `snapshot()` returned it.
    """
    return _DRAWN[env](snapshot)


def _svg(env: str, width: int, height: int, label: str, parts: Iterable[Markup]) -> Markup:
    head = Markup(
        '<svg class="picture {}" viewBox="0 0 {} {}" role="img" aria-label="{}" '
        'font-family="sans-serif" font-size="5.5">'
    )
    return head.format(env, width, height, visible(label)) + Markup("").join(parts) + Markup("</svg>")


def _use(symbol: str, x: float, y: float, more: str = "") -> Markup:
    return Markup('<use href="#w-{}" x="{}" y="{}"{}/>').format(symbol, x, y, more)


def _letter(name: str, x: float, y: float) -> Markup:
    """Draw a letter in the cell of a thing without a shape."""
    text = Markup('<text x="{}" y="{}" font-size="7" text-anchor="middle" fill="#1b1b1b">{}</text>')
    return text.format(x + 5, y + 7.5, visible(name[:1])[:1].upper())


def _rotate(quarters: int, x: int, y: int) -> Markup:
    return Markup(' transform="rotate({} {} {})"').format(90 * quarters, x + 5, y + 5)


def _join_words(parts: Iterable[str]) -> str:
    *most, last = list(parts) or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last


# BabyAI

COLORS = {
    "red": "#e0453a", "green": "#3fa34d", "blue": "#3f7fd9", "purple": "#a05cc9", "yellow": "#f2c230",
    "grey": "#9a9da3",
}  # fmt: skip
HEADINGS = ("east", "south", "west", "north")
"""By `agent_dir`, quarters of a turn clockwise."""
THINGS = ("key", "ball", "box", "door")
ROOM = 7
"""Cells from one wall of a room to the opposite one."""


def _babyai(seen: Mapping[str, Any]) -> Markup:
    columns, rows = seen["width"], seen["height"]
    width, height = columns * CELL, rows * CELL
    column, row = seen["agent_pos"]
    x, y, carried = column * CELL, row * CELL, seen["carrying"]
    parts = [
        Markup('<rect width="{}" height="{}" fill="#f1ede4"/>').format(width, height),
        _lines(range(CELL, width, CELL), range(CELL, height, CELL), width, height, "#d3ccbd", 0.4),
        _lines(_walls(columns), _walls(rows), width, height, "#5d6068", CELL),
        *(_draw_thing(each, each["pos"][0] * CELL, each["pos"][1] * CELL) for each in seen["objects"]),
        _use("agent", x, y, _rotate(seen["agent_dir"], x, y)),
    ]
    if carried:  # in a corner, which is always wall
        parts += [
            Markup('<circle cx="5" cy="5" r="5" fill="#fff" stroke="#1b1b1b" stroke-width=".5"/>'),
            _draw_thing({"type": carried[0], "color": carried[1]}, 0, 0),
        ]
    carries = f"a {' '.join(carried[::-1])}" if carried else "nothing"
    things = [
        f"a {_describe_thing(each)} in column {each['pos'][0]}, row {each['pos'][1]}"
        for each in seen["objects"]
    ]
    label = (
        f"A grid of {columns} by {rows} cells. The agent in column {column}, row {row} looks "
        f"{HEADINGS[seen['agent_dir']]} and carries {carries}. There is {_join_words(things)}."
    )
    return _svg("babyai", width, height, label, parts)


def _walls(count: int) -> list[float]:
    """Return the middles of walls along one axis: the outer walls, and those between rooms if there are
    several."""
    between = range(ROOM, count - 1, ROOM) if (count - 1) % ROOM == 0 else ()
    return [(cell + 0.5) * CELL for cell in (0, *between, count - 1)]


def _lines(
    xs: Iterable[float], ys: Iterable[float], width: int, height: int, color: str, thick: float
) -> Markup:
    way = "".join([*(f"M{x} 0v{height}" for x in xs), *(f"M0 {y}h{width}" for y in ys)])
    return Markup('<path d="{}" stroke="{}" stroke-width="{}"/>').format(way, color, thick)


def _draw_thing(thing: Mapping[str, Any], x: int, y: int) -> Markup:
    """Draw a thing in its color, with a letter for the color (none for grey) and its name as a tooltip."""
    kind, color = thing["type"], thing["color"]
    fill = Markup(' fill="{}"').format(COLORS.get(color, COLORS["grey"]))
    if kind in THINGS:
        state = "-open" if thing.get("open") else "-locked" if thing.get("locked") else ""
        shape = _use(kind + state, x, y, fill)
    else:
        shape = Markup('<rect x="{}" y="{}" width="9" height="9" rx="1"{}/>').format(x + 0.5, y + 0.5, fill)
        shape += _letter(kind, x, y)
    if color != "grey":
        mark = Markup(
            '<text x="{}" y="{}" font-size="4" fill="#1b1b1b" stroke="#fff" paint-order="stroke">{}</text>'
        )
        shape += mark.format(x + 7, y + 9.5, visible(color[:1])[:1].upper())
    return Markup("<g><title>{}</title>{}</g>").format(visible(_describe_thing(thing)), shape)


def _describe_thing(thing: Mapping[str, Any]) -> str:
    state = "open " if thing.get("open") else "locked " if thing.get("locked") else ""
    return f"{state}{thing['color']} {thing['type']}"


# Crafter

GROUNDS = ("grass", "sand", "path", "water", "stone", "lava", "out")
STANDING = {
    "tree": "grass", "plant": "grass", "cow": "grass", "zombie": "grass", "table": "grass",
    "coal": "stone", "iron": "stone", "diamond": "stone", "furnace": "path",
    "skeleton": "path", "arrow": "path",
}  # fmt: skip
"""The ground below each thing; a snapshot shows only the thing."""
VITALS = {"health": "#d9483b", "food": "#c98a2b", "drink": "#3f7fd9", "energy": "#8a6fc9"}
MOST = 9
"""Maximum of each vital."""
METALS = {"wood": "#a8703c", "stone": "#a3a5aa", "iron": "#e9ecf2"}
"""Colors of the materials of tools."""
ITEMS = {"sapling": "plant", "wood": "wood", "stone": "block", "coal": "coal", "iron": "iron",
         "diamond": "diamond"}  # fmt: skip
"""Shapes of the things that can be carried, except tools."""
FACINGS = [[1, 0], [0, 1], [-1, 0], [0, -1]]
"""In the order of `HEADINGS`."""
VEIL = 0.6
"""Opacity of the dark layer in the darkest night."""
NIGHT = 0.5
"""Daylight below which it is reported as night."""


def _crafter(seen: Mapping[str, Any]) -> Markup:
    cells = [row.split(",") for row in seen["window"]]
    size, middle = len(cells) * CELL, len(cells) // 2
    at, facing = middle * CELL, FACINGS.index(seen["facing"])
    veil = round(VEIL * (1 - seen["daylight"]) ** 2, 2)
    night = seen["daylight"] < NIGHT
    player = _use("asleep", at, at) if seen["sleeping"] else _use("player", at, at, _rotate(facing, at, at))
    parts = [*_ground(cells), *_draw_obstacles(cells)]
    if veil > 0.02:
        dark = Markup('<rect width="{0}" height="{0}" fill="#050a24" opacity="{1}"/>')
        parts.append(dark.format(size + OVERLAP, veil))
    if night:
        parts.append(_use("moon", size - CELL, 0))
    ahead = Markup('<path d="M{} {}h9v9h-9z" fill="none" stroke="#fff" stroke-dasharray="3 1.5"/>')
    parts.append(ahead.format(at + seen["facing"][0] * CELL + 0.5, at + seen["facing"][1] * CELL + 0.5))
    parts += [player, *_vitals(seen, size + 2), *_inventory(seen["inventory"], size + 21)]
    around = [name for name, _ in Counter(name for row in cells for name in row).most_common()]
    sight = _join_words(name for name in around if name not in ("out", "player"))
    has = _join_words(f"{count} {name}" for name, count in seen["inventory"].items())
    state = "sleeps" if seen["sleeping"] else "is dead" if seen["health"] <= 0 else "stands"
    label = (
        f"Crafter by {'night' if night else 'day'}, step {seen['step']}. The player {state}, facing "
        f"{seen['facing_target']} in the {HEADINGS[facing]}, with {has}; "
        f"{_join_words(f'{vital} {seen[vital]}' for vital in VITALS)} of {MOST}. In sight: {sight}."
    )
    return _svg("crafter", size, size + 45, label, parts)


def _ground(cells: list[list[str]]) -> Iterator[Markup]:
    """Draw the ground, one run of equal cells at a time."""
    for row, names in enumerate(cells):
        below = [_below(cells, row, column) for column in range(len(names))]
        column = 0
        for name, run in groupby(below):
            count = len(list(run))
            width = Markup(' width="{}"').format(count * CELL + OVERLAP)
            yield _use(name, column * CELL, row * CELL, width)
            column += count


def _below(cells: list[list[str]], row: int, column: int) -> str:
    """Return the ground of a cell; for the player's, the most frequent walkable ground around it."""
    name = cells[row][column]
    if name == "player":
        near = [each for line in cells[row - 1 : row + 2] for each in line[column - 1 : column + 2]]
        return Counter(each for each in ["grass", *near] if each in GROUNDS[:3]).most_common(1)[0][0]
    return name if name in GROUNDS else STANDING.get(name, "unknown")


def _draw_obstacles(cells: list[list[str]]) -> Iterator[Markup]:
    for row, names in enumerate(cells):
        for column, name in enumerate(names):
            x, y = column * CELL, row * CELL
            if name in STANDING:
                yield _use(name, x, y)
            elif name not in GROUNDS and name != "player":
                yield _letter(name, x, y)


def _vitals(seen: Mapping[str, Any], top: int) -> Iterator[Markup]:
    """Draw four bars with names and numbers, in two rows of two."""
    bar = Markup(
        '<text x="{0}" y="{1}" fill="currentColor">{2} {3}</text>'
        '<path d="M{0} {4}h40" stroke="#888" stroke-opacity=".35" stroke-width="2"/>'
        '<path d="M{0} {4}h{5}" stroke="{6}" stroke-width="2"/>'
    )
    for place, (vital, color) in enumerate(VITALS.items()):
        x, y = 2 + place % 2 * 46, top + place // 2 * 10
        long = round(40 * max(0, min(seen[vital], MOST)) / MOST, 1)
        yield bar.format(x, y + 4.5, vital, seen[vital], y + 7, long, color)


def _inventory(inventory: Mapping[str, int], top: int) -> Iterator[Markup]:
    """Draw the inventory with its counts, six kinds in a row."""
    number = Markup('<text x="{}" y="{}" fill="currentColor">{}</text>')
    for place, (name, count) in enumerate(inventory.items()):
        x, y = place % 6 * 15, top + place // 6 * 12
        metal, _, tool = name.partition("_")
        if name in ITEMS:
            yield _use(ITEMS[name], x, y)
        elif tool in ("pickaxe", "sword") and metal in METALS:
            yield _use(tool, x, y, Markup(' fill="{}"').format(METALS[metal]))
        else:
            yield _use("unknown", x, y, Markup(' width="{}"').format(CELL)) + _letter(name, x, y)
        yield number.format(x + 10.5, y + 7, count)


_DRAWN = {"babyai": _babyai, "crafter": _crafter}

PICTURED = frozenset(_DRAWN)
"""The environments with snapshots that can be drawn, by `TextEnv.name`."""
