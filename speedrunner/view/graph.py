"""A library's call graph as a picture: callers above whom they call, primitives last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from markupsafe import Markup

from speedrunner.library.library import Library
from speedrunner.results.libraries import depths

WIDEST = 10
"""Boxes of one row."""
SWEEPS = 12
"""Times that all rows are put in order by those above and below, in turns."""
BOX, ROW, GAP, LETTER, MARGIN = 26, 78, 18, 7.3, 10
"""Heights of a box and from row to row, space between boxes, widths of a letter and around; in pixels."""
LEGEND = 50
"""Height of the line that says which box is what."""

Place = tuple[str, int]
"""A box, or where the line to a box of a lower row passes through a row: name and row."""

HEAD = (
    '<svg class="graph" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" aria-label="{2}" '
    'font-family="monospace" font-size="12"><defs><marker id="graph-end" viewBox="0 0 8 8" refX="7" refY="4" '
    'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0l8 4-8 4z" fill="#888"/></marker></defs>'
)
LINE_END = ' marker-end="url(#graph-end)"'
KINDS = {
    "public": ("#3b73c8", 'rx="6" stroke-width="2"'),
    "private": ("#b0701a", 'rx="6" stroke-width="1.5" stroke-dasharray="5 3"'),
    "primitive": ("#777777", 'rx="13"'),
}
"""Color and shape of boxes."""


def call_graph(library: Library) -> Markup:
    """One inline SVG; each skill is a link to `#skill-NAME`. Empty where there is no skill.

    Rows are as many calls from the end as their longest chain. All lines to one box that cross a row do so at
    one place; those of circles, which lead up or aside, are dashed.

    Args:
        library: with the environment's primitives, if their boxes are to be shown.
    """
    if not library.skills:
        return Markup()
    calls = {name: library.calls(name) for name in library.by_name}
    kinds = {each.name: "public" if each.public else "private" for each in library.skills}
    kinds |= {name: "primitive" for names in calls.values() for name in names if name not in calls}
    rows = _rows(calls, kinds)
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    lines = _lines(calls, row_of)
    xs, width = _placed(rows, lines)
    height = len(rows) * ROW - (ROW - BOX) + LEGEND + 2 * MARGIN
    public = sum(kind == "public" for kind in kinds.values())
    label = (
        f"Call graph of {len(calls)} skills, {public} public and {len(calls) - public} private, "
        f"and {len(kinds) - len(calls)} primitives that they call"
    )
    parts = [Markup(HEAD).format(width, height, label), *_legend()]
    parts += [_line(one, other, row_of[other[0]] == other[1], xs) for one, other in lines]
    for name, names in calls.items():
        up = [(called, row_of[called]) for called in names if row_of[called] <= row_of[name]]
        parts += [_around((name, row_of[name]), other, xs) for other in up]
    for name, kind in kinds.items():
        parts.append(_box(name, kind, xs[name, row_of[name]], _y(row_of[name]), calls.get(name)))
    return Markup("").join([*parts, Markup("</svg>")])


def _rows(calls: Mapping[str, tuple[str, ...]], kinds: Mapping[str, str]) -> list[list[str]]:
    """The boxes of each row from above; what would be too wide is several rows."""
    depth = depths({name: [each for each in called if each in calls] for name, called in calls.items()})
    layers = [[name for name in calls if depth[name] == each] for each in range(max(depth.values()), -1, -1)]
    layers.append([name for name in kinds if name not in calls])
    rows = []
    for layer in filter(None, layers):
        most = -(-len(layer) // -(-len(layer) // WIDEST))  # as many in each row
        rows += [layer[first : first + most] for first in range(0, len(layer), most)]
    return rows


def _lines(calls: Mapping[str, tuple[str, ...]], row_of: Mapping[str, int]) -> list[tuple[Place, Place]]:
    """The lines that lead down, a piece from row to row at a time."""
    found: dict[tuple[Place, Place], None] = {}
    for name, names in calls.items():
        for called in names:
            way = [(called, row) for row in range(row_of[name] + 1, row_of[called] + 1)]
            found |= dict.fromkeys(pairwise([(name, row_of[name]), *way]))
    return list(found)


def _placed(rows: list[list[str]], lines: list[tuple[Place, Place]]) -> tuple[dict[Place, float], int]:
    """The middles of all places, each as near as may be to those that it is joined to; the whole width."""
    order: list[list[Place]] = [[(name, number) for name in row] for number, row in enumerate(rows)]
    joined: dict[Place, tuple[list[Place], list[Place]]] = {place: ([], []) for row in order for place in row}
    half = {place: (_width(place[0]) + GAP) / 2 for place in joined}
    for one, other in lines:
        if other not in joined:
            joined[other], half[other] = ([], []), GAP / 2
            order[other[1]].append(other)
        joined[one][1].append(other)
        joined[other][0].append(one)

    def spread(row: list[Place], wanted: Mapping[Place, float]) -> None:
        """Put a row where it wants to be, within what the widest row takes, its order kept."""
        at = float("-inf")
        for place in row:
            xs[place] = at = max(at, wanted[place] - half[place]) + half[place]
            at += half[place]
        off = sum(xs[place] - wanted[place] for place in row) / len(row)
        end = most / 2
        for place in reversed(row):
            xs[place] = min(xs[place] - off, end - half[place])
            end = xs[place] - half[place]
        begin = -most / 2
        for place in row:
            xs[place] = max(xs[place], begin + half[place])
            begin = xs[place] + half[place]

    most = max(2 * sum(half[place] for place in row) for row in order)
    xs: dict[Place, float] = {}
    for row in order:
        spread(row, dict.fromkeys(row, 0.0))
    for sweep in range(SWEEPS):
        side = sweep % 2
        for row in order[::-1] if side else order:
            near = {place: joined[place][side] or [place] for place in row}
            wanted = {place: sum(xs[each] for each in near[place]) / len(near[place]) for place in row}
            row.sort(key=wanted.__getitem__)
            spread(row, wanted)
    first = min(x - half[place] for place, x in xs.items()) - MARGIN
    last = max(x + half[place] for place, x in xs.items()) + MARGIN
    return {place: round(x - first, 1) for place, x in xs.items()}, max(round(last - first), 330)


def _width(name: str) -> float:
    return len(name) * LETTER + 18


def _y(row: int) -> int:
    """Where a row begins."""
    return MARGIN + LEGEND + row * ROW


def _line(one: Place, other: Place, end: bool, xs: Mapping[Place, float]) -> Markup:
    """A piece of a line down, through the other row unless it ends there."""
    top, bottom = _y(one[1]) + BOX, _y(other[1])
    middle = (top + bottom) / 2
    way = f"M{xs[one]} {top}C{xs[one]} {middle} {xs[other]} {middle} {xs[other]} {bottom}"
    return _way(way if end else f"{way}v{BOX}", other[0], Markup(LINE_END) if end else Markup())


def _around(one: Place, other: Place, xs: Mapping[Place, float]) -> Markup:
    """A line to a box of the same row or a row above."""
    x, y, to = xs[one], _y(one[1]), xs[other]
    if one == other:
        way = f"M{x + _width(one[0]) / 2} {y + 6}c18 -10 18 24 1 14"
    elif one[1] == other[1]:
        way = f"M{x} {y}C{x} {y - 34} {to} {y - 34} {to} {y}"
    else:
        way = f"M{x} {y}C{x} {y - 30} {to} {_y(other[1]) + BOX + 30} {to} {_y(other[1]) + BOX}"
    return _way(way, other[0], Markup(f'{LINE_END} stroke-dasharray="4 3"'))


def _way(way: str, called: str, more: Markup) -> Markup:
    line = Markup('<path class="call" d="{}" fill="none" stroke="#888"{}><title>calls of {}</title></path>')
    return line.format(way, more, called)


def _box(name: str, kind: str, x: float, y: float, called: tuple[str, ...] | None) -> Markup:
    """A box around its name; a link where it is a skill, which has a list of what it calls."""
    width = _width(name)
    color, shape = KINDS[kind]
    box = Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" fill="{}" fill-opacity=".13" stroke="{}" {}/>'
        '<text x="{}" y="{}" text-anchor="middle" fill="currentColor">{}</text>'
    ).format(round(x - width / 2, 1), y, round(width, 1), BOX, color, color, Markup(shape), x, y + 17, name)
    if called is None:
        return Markup('<g class="{}"><title>{} ({})</title>{}</g>').format(kind, name, kind, box)
    title = f"{name} ({kind}), calls {', '.join(called) or 'nothing'}"
    link = Markup('<a class="{}" href="#skill-{}"><title>{}</title>{}</a>')
    return link.format(kind, name, title, box)


def _legend() -> Iterator[Markup]:
    x = float(MARGIN)
    for kind in KINDS:
        half = _width(kind) / 2
        yield _box(kind, kind, x + half, MARGIN // 2, None)
        x += 2 * half + GAP
