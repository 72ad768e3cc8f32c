"""Pictures of ScienceWorld: boxes for rooms with their objects, lines for doors, a mark for the agent."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from speedrunner.config.console import visible
from speedrunner.pages.pictures import Picture, Place, join_words

WIDTH, HEIGHT = 78, 38
"""A room's box, in the picture's own units."""
ACROSS, DOWN = 96, 44
"""From one box to the next."""
LINE = 7.5
"""From one line of text to the next."""
ROOM_LINES, ROOM_CHARS = 3, 23
"""Lines of objects in a box, and characters of a line."""
BELOW_LINES, BELOW_CHARS = 6, 108
"""The same for the text below the boxes."""


def draw_rooms(seen: Mapping[str, Any]) -> Picture:
    """Draw what `ScienceWorld.house` returned."""
    rooms, doors, here = seen["rooms"], [tuple(each) for each in seen["doors"]], seen["room"]
    places = _arrange(tuple(sorted(rooms)), tuple((one, other) for one, other, _ in doors))
    width = max(x for x, _ in places.values()) + WIDTH + 2
    height = max(y for _, y in places.values()) + HEIGHT + 6
    carried = join_words(seen["inventory"])
    open_doors = [f"{one} and {other}" for one, other, is_open in doors if is_open]
    below = [f"In the {here}: {join_words(rooms.get(here, []))}.", f"The agent carries {carried}."]
    return Picture(
        "scienceworld",
        (width, height + LINE * (BELOW_LINES + 1)),
        ((0, 0), *places.values(), (1, height)),
        visible(
            f"{len(rooms)} rooms. The agent is in the {here} and carries {carried}. There: "
            f"{join_words(rooms.get(here, []))}. Open doors: {join_words(open_doors)}."
        ),
        (
            Markup("").join(_draw_door(places[one], places[other], is_open) for one, other, is_open in doors),
            *(_draw_room(name, rooms[name], name == here) for name in places),
            _draw_lines([line for each in below for line in _wrap(each, BELOW_CHARS, BELOW_LINES - 1)], 0),
        ),
    )


@lru_cache(maxsize=64)
def _arrange(rooms: tuple[str, ...], doors: tuple[tuple[str, str], ...]) -> dict[str, Place]:
    """Return the places of rooms: columns by the number of doors from the room that has the most of them."""
    near: dict[str, set[str]] = {room: set() for room in rooms}
    for one, other in doors:
        near[one].add(other)
        near[other].add(one)
    found: dict[str, int] = {}
    while left := [room for room in rooms if room not in found]:
        reached = [max(left, key=lambda room: (len(near[room]), room))]
        depth = 0
        while reached:
            found |= dict.fromkeys(reached, depth)
            reached = sorted({each for room in reached for each in near[room]} - found.keys())
            depth += 1
    columns: dict[int, list[str]] = {}
    for room, depth in found.items():
        columns.setdefault(depth, []).append(room)
    tall = max(map(len, columns.values()))
    places: dict[str, Place] = {}
    for depth, column in columns.items():
        column.sort(key=lambda room: (sum(found[each] > found[room] for each in near[room]), room))
        top = (tall - len(column)) * DOWN / 2
        places |= {room: (1 + depth * ACROSS, 1 + top + row * DOWN) for row, room in enumerate(column)}
    return places


def _draw_door(one: Place, other: Place, is_open: bool) -> Markup:
    (x1, y1), (x2, y2) = sorted((one, other))
    line = Markup('<path class="{}" d="M{:g} {:g}L{:g} {:g}"/>')
    end = 0 if x1 < x2 else WIDTH / 2
    state = "open" if is_open else "closed"
    return line.format(state, x1 + WIDTH - end, y1 + HEIGHT / 2, x2 + end, y2 + HEIGHT / 2)


@lru_cache(maxsize=1024)
def _draw_box(name: str, things: tuple[str, ...], is_here: bool) -> Markup:
    box = Markup('<g class="{}"><rect width="{}" height="{}" rx="4"/>{}{}{}</g>')
    title = Markup('<text x="4" y="9" class="name">{}</text>').format(visible(name))
    mark = Markup('<circle cx="{}" cy="7" r="3"/>').format(WIDTH - 8) if is_here else Markup("")
    lines = _draw_lines(_wrap(", ".join(things), ROOM_CHARS, ROOM_LINES), 17, 4)
    return box.format("here" if is_here else "room", WIDTH, HEIGHT, title, mark, lines)


def _draw_room(name: str, things: Sequence[str], is_here: bool) -> Markup:
    return _draw_box(name, tuple(each.partition(" (")[0] for each in things), is_here)


def _draw_lines(lines: Sequence[str], top: float, left: float = 0) -> Markup:
    text = Markup('<text x="{:g}" y="{:g}">{}</text>')
    return Markup("").join(
        text.format(left, top + LINE * number, visible(line)) for number, line in enumerate(lines)
    )


def _wrap(text: str, chars: int, lines: int) -> list[str]:
    return textwrap.wrap(text, chars, max_lines=lines, placeholder=" …")
