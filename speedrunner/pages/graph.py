"""Draw a library's call graph: callers above their callees, primitives last."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import log1p

import numpy as np
from markupsafe import Markup

from speedrunner.library.library import Library
from speedrunner.results.libraries import depths

WIDEST = 10
"""Maximum boxes in one row."""
BOX, ROW, GAP, LETTER, MARGIN = 26, 78, 18, 7.3, 10
"""Height of a box, distance of rows, space between boxes, width of a letter, outer margin; in pixels."""
ROUNDS = 200
"""Iterations in which boxes move towards their neighbors: enough for some hundred boxes."""
THIN, THICK = 1.0, 7.0
"""Width of the line of a call that never ran, and of the one that ran most often, in pixels."""
LEGEND = 50
"""Height of the legend."""

Place = tuple[float, int]
"""The middle of a box from the left, and its upper edge, in pixels."""

HEAD = (
    '<svg class="graph" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="group" aria-label="{2}" '
    'font-family="monospace" font-size="12"><defs><marker id="graph-end" viewBox="0 0 8 8" refX="7" refY="4" '
    'markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
    '<path d="M0 0l8 4-8 4z" fill="#888"/></marker></defs>'
)
KINDS = {
    "public": ("#3b73c8", 'rx="6" stroke-width="2"'),
    "private": ("#b0701a", 'rx="6" stroke-width="1.5" stroke-dasharray="5 3"'),
    "primitive": ("#777777", 'rx="13"'),
}
"""Color and shape of boxes."""


def call_graph(library: Library, ran: Mapping[tuple[str, str], int], shown: Collection[str]) -> Markup:
    """Return one inline SVG, in which each skill links to `#skill-NAME`. Empty without skills.

    A skill's row is the length of its longest chain of calls, counted from the end. Lines of cycles, which
    lead up or sideways, are dashed. The width of a line grows with the logarithm of its calls that ran.

    Args:
        library: includes the environment's primitives if their boxes are to be shown.
        ran: how often each caller called each function; the actor's name is empty.
        shown: names of the drawn skills.
    """
    skills = [each for each in library.skills if each.name in shown]
    if not skills:
        return Markup()
    left_out = library.by_name.keys() - {each.name for each in skills}
    calls = {
        each.name: tuple(called for called in library.calls(each.name) if called not in left_out)
        for each in skills
    }
    kinds = {each.name: "public" if each.public else "private" for each in skills}
    kinds |= {name: "primitive" for names in calls.values() for name in names if name not in calls}
    rows = _rows(calls)
    widths = [sum(_width(name) + GAP for name in row) for row in rows]
    width = max(round(max(widths)) + 2 * MARGIN, 330)
    height = len(rows) * ROW - (ROW - BOX) + LEGEND + 2 * MARGIN
    places = {}
    for number, (row, own) in enumerate(zip(rows, widths, strict=True)):
        left = (width - own) / 2
        for name in row:
            half = (_width(name) + GAP) / 2
            places[name] = (round(left + half, 1), MARGIN + LEGEND + number * ROW)
            left += 2 * half
    public = sum(kind == "public" for kind in kinds.values())
    label = (
        f"Call graph of {len(calls)} skills, {public} public and {len(calls) - public} private, "
        f"and {len(kinds) - len(calls)} primitives that they call"
    )
    parts = [Markup(HEAD).format(width, height, label), *_legend()]
    lines = [(name, called) for name, names in calls.items() for called in names]
    most = max((ran.get(line, 0) for line in lines), default=0)
    for line in lines:
        parts.append(_line(*line, places, ran.get(line, 0), most))
    for name, kind in kinds.items():
        parts.append(_box(name, kind, *places[name], calls.get(name), ran.get(("", name), 0)))
    return Markup("").join([*parts, Markup("</svg>")])


def _rows(calls: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Return the boxes of each row from above; a wide row is split."""
    order = _order(calls)
    depth = depths({name: [each for each in called if each in calls] for name, called in calls.items()})
    layers = [
        [name for name in order if depth.get(name) == each] for each in range(max(depth.values()), -1, -1)
    ]
    layers.append([name for name in order if name not in calls])
    rows = []
    for layer in filter(None, layers):
        most = -(-len(layer) // -(-len(layer) // WIDEST))  # equal rows
        rows += [layer[first : first + most] for first in range(0, len(layer), most)]
    return rows


def _order(calls: Mapping[str, Sequence[str]]) -> list[str]:
    """Return all names in an order that places neighbors close together, so that few lines cross.

    The order approximates the graph's spectral order, because a library from someone else must not take long.
    """
    names = list(dict.fromkeys([*calls, *(called for each in calls.values() for called in each)]))
    number = {name: n for n, name in enumerate(names)}
    ends = [(number[name], number[called]) for name in calls for called in calls[name]]
    ends += [(called, name) for name, called in ends] + [(n, n) for n in number.values()]
    here, there = np.array(ends).T
    degrees = np.bincount(here)
    places = np.random.default_rng(0).random(len(names))
    for _ in range(ROUNDS):
        places = np.bincount(here, weights=places[there]) / degrees
        places -= np.average(places, weights=degrees)
        places /= np.abs(places).max() or 1.0
    return [names[n] for n in np.argsort(places, kind="stable")]


def _width(name: str) -> float:
    return len(name) * LETTER + 18


def _line(name: str, called: str, places: Mapping[str, Place], count: int, most: int) -> Markup:
    """Draw an arrow from a box to one that it calls.

    Args:
        count: how often the call ran.
        most: the highest such number in the graph.
    """
    (x, y), (to, top) = places[name], places[called]
    dashed = Markup(' stroke-dasharray="4 3"')
    if name == called:
        way = f"M{x + _width(name) / 2} {y + 6}c18 -10 18 24 1 14"
    elif y == top:
        way = f"M{x} {y}C{x} {y - 34} {to} {y - 34} {to} {y}"
    elif y > top:
        way = f"M{x} {y}C{x} {y - 30} {to} {top + BOX + 30} {to} {top + BOX}"
    else:
        middle = (y + BOX + top) / 2
        way, dashed = f"M{x} {y + BOX}C{x} {middle} {to} {middle} {to} {top}", Markup()
    width = THIN + (THICK - THIN) * (log1p(count) / log1p(most) if count else 0.0)
    line = Markup(
        '<path class="call" d="{}" fill="none" stroke="#888" stroke-width="{:.1f}" stroke-opacity="{}"'
        ' marker-end="url(#graph-end)"{}><title>calls of {}, {:,} by {}</title></path>'
    )
    return line.format(way, width, "0.8" if count else "0.45", dashed, called, count, name)


def _box(name: str, kind: str, x: float, y: float, called: tuple[str, ...] | None, acted: int = 0) -> Markup:
    """Draw a box around its name. For a skill, which has a list of callees, it is a link.

    Args:
        acted: number of calls by the actor.
    """
    width = _width(name)
    color, shape = KINDS[kind]
    fill = f"color-mix(in srgb, {color} 13%, var(--back, white))"  # hides lines behind it
    box = Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" fill="{}" stroke="{}" {}/>'
        '<text x="{}" y="{}" text-anchor="middle" fill="currentColor">{}</text>'
    ).format(round(x - width / 2, 1), y, round(width, 1), BOX, fill, color, Markup(shape), x, y + 17, name)
    if called is None:
        return Markup('<g class="{}"><title>{} ({})</title>{}</g>').format(kind, name, kind, box)
    title = f"{name} ({kind}), calls {', '.join(called) or 'nothing'}"
    title += f"; called {acted:,} times by the actor" if acted else ""
    link = Markup('<a class="{}" href="#skill-{}"><title>{}</title>{}</a>')
    return link.format(kind, name, title, box)


def _legend() -> Iterator[Markup]:
    x = float(MARGIN)
    for kind in KINDS:
        half = _width(kind) / 2
        yield _box(kind, kind, x + half, MARGIN // 2, None)
        x += 2 * half + GAP
