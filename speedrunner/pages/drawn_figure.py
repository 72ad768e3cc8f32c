"""A figure as the page and the report's files show it. Drawing takes most of the time of a small report."""

from __future__ import annotations

from typing import NamedTuple

from speedrunner.pages.camera_ready import camera_ready
from speedrunner.pages.inline import InlineFigure, draw_inline
from speedrunner.pages.panels import Figure
from speedrunner.pages.printing import print_figure


class DrawnFigure(NamedTuple):
    """A figure with its drawing for the page, and its files by their paths in the report's folder."""

    figure: Figure
    inline: InlineFigure
    files: dict[str, bytes]


def draw(figure: Figure) -> DrawnFigure:
    """Draw a figure for the page and for papers. The same figure gives the same bytes."""
    printed = {f"figures/{name}": content for name, content in print_figure(figure).items()}
    ready = {f"paper/{name}": content for name, content in camera_ready(figure).items()}
    return DrawnFigure(figure, draw_inline(figure), printed | ready)
