"""Draw panels with matplotlib. The page and the files for papers share this code, at different sizes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.rcsetup import cycler

from speedrunner.pages.marks import (
    DRAW,
    SOFT,
    TEXT,
    Drawn,
    fill_look,
    line_look,
    name_over,
    over_look,
    point_look,
)
from speedrunner.pages.panels import Figure, Panel
from speedrunner.pages.scales import mark_checkpoints, without_extremes

GRID = "#dcdcdc"
"""Color of grid lines."""

TICKS = 6
"""Maximum number of checkpoints with a number at the axis."""

BASE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # included in matplotlib, so the same everywhere
    "text.parse_math": False,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "ytick.major.size": 0,
    "axes.prop_cycle": cycler(color=[SOFT]),
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "speedrunner",
    "pdf.fonttype": 42,
}


@contextmanager
def drawing_settings(own: Mapping[str, Any]) -> Iterator[None]:
    """Apply the shared settings and those of a medium, independent of any `matplotlibrc`."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # other scripts: a browser has fonts for them
        matplotlib.rcdefaults()
        settings: Any = {**BASE, **own}
        matplotlib.rcParams.update(settings)
        yield


def draw_panel(axes: Axes, panel: Panel, ticks: int = TICKS) -> Drawn:
    """Draw the marks, ticks and grid of a panel. The caller adds its title and the names of its axes.

    Args:
        ticks: maximum number of checkpoints with a number at the axis.
    """
    panel, drawn = without_extremes(panel), Drawn({}, {})
    DRAW[panel.kind](axes, panel, drawn)
    if panel.kind == "lines":
        mark_checkpoints(axes, panel, ticks)
    return drawn


def legend_entries(figure: Figure) -> dict[str, tuple[str, str]]:
    """Return the entries of a figure's legend: for each name, a series and the kind of its marks."""
    entries: dict[str, tuple[str, str]] = {}
    for panel in (panel for row in figure.rows for panel in row if panel.kind != "matrix"):
        for line in panel.lines:
            entries.setdefault(line.name, (line.name, panel.kind))
        for line in panel.over:
            entries.setdefault(name_over(line, panel), (line.name, "over"))
    return entries


def draw_sample(axes: Axes, series: str, kind: str) -> None:
    """Draw a series' sample for a legend, on axes without a frame."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    if kind in ("bars", "stack"):
        axes.bar([0.5], [0.8], 0.8, bottom=0.1, **fill_look(series), clip_on=False)
    elif kind in ("points", "dots"):
        axes.plot([0.5], [0.5], **point_look(series), clip_on=False)
    else:
        look = over_look(series) if kind == "over" else line_look(series)
        axes.plot([0.0, 0.5, 1.0], [0.5] * 3, markevery=[1], **look, clip_on=False)
