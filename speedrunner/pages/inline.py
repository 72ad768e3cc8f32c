"""Figures as SVG in the page: text stays text, colors follow the page, marks show their values."""

from __future__ import annotations

import io
import re
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from speedrunner.pages.drawing import GRID, draw_panel, draw_sample, drawing_settings, legend_entries
from speedrunner.pages.marks import BACK, SOFT, TEXT, Drawn
from speedrunner.pages.panels import Figure, Panel
from speedrunner.pages.scales import drawable
from speedrunner.pages.styles import PALETTE

WIDTH, HEIGHT, BAR, CELL = 340, 150, 23, 52
"""Pixels: width of a panel, height of its axes, of each horizontal bar, and of each row of a matrix."""

PAD = 3
"""Pixels around a panel, for markers at its corners."""

FONT = 11
SCREEN = {
    "figure.dpi": 72,  # one pixel is one point
    "savefig.dpi": 72,
    "font.size": FONT,
    "axes.titlesize": FONT,
    "axes.labelsize": FONT,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "axes.linewidth": 1,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 1,
    "errorbar.capsize": 2.5,
}

COLORS = {ink: f"var(--{name})" for name, (ink, _) in PALETTE.items()} | {
    GRID: "var(--line)", SOFT: "var(--soft)", TEXT: "currentColor", BACK: "var(--back)",
}  # fmt: skip

_NUMBER, _COLOR = re.compile(r"-?\d+\.\d{2,}"), re.compile("|".join(COLORS))
_SVG = "{http://www.w3.org/2000/svg}"

ElementTree.register_namespace("", _SVG[1:-1])
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


class InlinePanel(NamedTuple):
    """A panel for the page: its headings and its drawing."""

    title: str
    measure: str
    svg: Markup


class InlineFigure(NamedTuple):
    """Rows of panels, and a legend of names with their samples."""

    rows: list[list[InlinePanel]]
    legend: list[tuple[str, Markup]]


def draw_inline(figure: Figure) -> InlineFigure:
    """Draw each panel of a figure as a separate SVG, all with axes of the same size."""
    with drawing_settings(SCREEN):
        panels = [panel for row in figure.rows for panel in row]
        drawn = [_draw(panel) for panel in panels]
        margins = [_margins(axes) for _, axes, _ in drawn]
        left, right, below, above = (max(sides) for sides in zip(*margins, strict=True))
        inner = max(_inner_height(panel) for panel in panels)
        height = inner + below + above
        for canvas, _, _ in drawn:
            canvas.set_size_inches(WIDTH / 72, height / 72)
            for each in canvas.axes:
                each.set_position(
                    (left / WIDTH, below / height, (WIDTH - left - right) / WIDTH, inner / height)
                )
        svgs = iter(
            _svg(canvas, found.values, f"{figure.name}-{number}")
            for number, (canvas, _, found) in enumerate(drawn)
        )
        rows = [[InlinePanel(panel.title, panel.y, next(svgs)) for panel in row] for row in figure.rows]
        if all(len(row) == 1 for row in rows):  # one environment: its measures side by side
            rows = [[panel for row in rows for panel in row]]
        legend = [
            (name, _sample(*entry, f"{figure.name}-legend-{number}"))
            for number, (name, entry) in enumerate(legend_entries(figure).items())
        ]
    return InlineFigure(rows, legend)


def _inner_height(panel: Panel) -> int:
    """Return the height of a panel's axes in pixels."""
    if panel.kind in ("stack", "dots"):
        return BAR * len(panel.names) + 8
    return CELL * len(panel.lines) if panel.kind == "matrix" else HEIGHT


def _canvas(width: float, height: float) -> tuple[Canvas, Axes]:
    canvas = Canvas((width / 72, height / 72))
    canvas.patch.set_visible(False)
    return canvas, canvas.add_axes((0.2, 0.2, 0.6, 0.6))


def _draw(panel: Panel) -> tuple[Canvas, Axes, Drawn]:
    canvas, axes = _canvas(WIDTH, HEIGHT)
    drawn = draw_panel(axes, panel)
    axes.set_xlabel(panel.x)
    for each in canvas.axes:
        each.patch.set_visible(False)
    return canvas, axes, drawn


def _margins(axes: Axes) -> tuple[float, float, float, float]:
    """Return the pixels that texts and marks need at the left, right, bottom and top of the axes."""
    inner = axes.get_window_extent()
    outer = [each.get_tightbbox() for each in axes.figure.axes]
    return (
        PAD + max(inner.x0 - box.x0 for box in outer if box),
        PAD + max(4.0, *(box.x1 - inner.x1 for box in outer if box)),
        PAD + max(inner.y0 - box.y0 for box in outer if box),
        PAD + max(4.0, *(box.y1 - inner.y1 for box in outer if box)),
    )


def _sample(series: str, kind: str, name: str) -> Markup:
    canvas, axes = _canvas(34, 14)
    axes.set_position((0.06, 0.0, 0.88, 1.0))
    axes.patch.set_visible(False)
    draw_sample(axes, series, kind)
    return _svg(canvas, {}, name)


def _svg(canvas: Canvas, values: Mapping[str, list[str]], name: str) -> Markup:
    """Return a drawing as an element of the page.

    Args:
        values: the texts of marks, by the group id of their artist.
        name: prefix of all ids of the drawing.
    """
    content = io.StringIO()
    canvas.savefig(content, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ElementTree.fromstring(content.getvalue())
    for id_, texts in values.items():
        for mark, text in zip(_marks(root, id_), texts, strict=True):
            ElementTree.SubElement(mark, f"{_SVG}title").text = drawable(text)
    root.attrib = {"viewBox": root.attrib["viewBox"]}
    text = ElementTree.tostring(root, encoding="unicode")
    text = re.sub(r"(?s)<metadata.*?</metadata>|<defs>\s*<style.*?</defs>", "", text)
    used = {id_ for pair in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text) for id_ in pair}
    return Markup(re.sub(r"<[^>]+>\s*", lambda tag: _tidy(tag.group(), name, used), text))


def _marks(root: ElementTree.Element, id_: str) -> Iterator[ElementTree.Element]:
    """Yield the marks of an artist: the uses of its marker, or its one path."""
    (group,) = (each for each in root.iter(f"{_SVG}g") if each.get("id") == id_)
    return iter([*group.iter(f"{_SVG}use")] or [*group.iter(f"{_SVG}path")])


def _tidy(tag: str, name: str, used: Container[str]) -> str:
    """Return a tag with the page's colors and fonts, rounded numbers, and ids that begin with the drawing's
    name; ids that are not in `used` are left out."""
    tag = re.sub(r' xmlns(:\w+)?="[^"]*"|\bfont[^;"]*;?|(?<=[:;]) +| +(?=")|\s+$', "", tag)
    tag = _NUMBER.sub(lambda found: f"{float(found.group()):.2f}".rstrip("0").rstrip("."), tag)
    tag = _COLOR.sub(lambda found: COLORS[found.group()], tag).replace(' style=""', "")
    tag = re.sub(r' id="([^"]+)"', lambda found: found.group() if found[1] in used else "", tag)
    return re.sub(r'( id="|url\(#|href="#)', rf"\1{name}-", tag).replace("xlink:href", "href")
