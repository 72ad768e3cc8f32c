"""Figures drawn by Plotly, in a style that survives greyscale and two columns."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as graphs
from plotly.subplots import make_subplots

from speedrunner.console import visible
from speedrunner.report.panels import Figure, Line, Panel
from speedrunner.report.styles import FAINT, style

PANEL_HEIGHT = 270
BETWEEN = 85
"""Pixels of a row of panels, and of what stands between two of them."""

FONT = 13
GRID = "#d9d9d9"


def draw(figure: Figure) -> graphs.Figure:
    """A figure as Plotly has it."""
    rows, columns = len(figure.rows), max(map(len, figure.rows))
    specs = [
        [{"secondary_y": bool(row[n].over)} if n < len(row) else None for n in range(columns)]
        for row in figure.rows
    ]
    titles = [_text(row[n].title) if n < len(row) else "" for row in figure.rows for n in range(columns)]
    height = PANEL_HEIGHT * rows
    drawn = make_subplots(
        rows=rows,
        cols=columns,
        specs=specs,
        subplot_titles=titles,
        vertical_spacing=BETWEEN / height,
        horizontal_spacing=0.3 / columns if columns > 1 else 0.1,
    )
    named: set[str] = set()
    for number, row in enumerate(figure.rows, start=1):
        for column, panel in enumerate(row, start=1):
            for trace, second in _traces(panel, named):
                drawn.add_trace(
                    trace, row=number, col=column, **({"secondary_y": second} if panel.over else {})
                )
            mode = "tozero" if panel.kind == "points" else "normal"
            drawn.update_xaxes(title_text=panel.x, rangemode=mode, row=number, col=column)
            side = {"secondary_y": False} if panel.over else {}
            drawn.update_yaxes(title_text=panel.y, row=number, col=column, **side)
            if panel.over:
                own = {"title_text": panel.over_y, "tickmode": "auto", "showgrid": False}
                drawn.update_yaxes(own, row=number, col=column, secondary_y=True)
    stacked = any(panel.kind == "stack" for row in figure.rows for panel in row)
    drawn.update_xaxes(gridcolor=GRID, zerolinecolor=GRID)
    drawn.update_yaxes(gridcolor=GRID, zerolinecolor=GRID, rangemode="tozero", ticklabelstandoff=4)
    if stacked:
        drawn.update_yaxes(autorange="reversed", showgrid=False)
    drawn.update_layout(
        template="plotly_white",
        font={"size": FONT, "family": "Helvetica, Arial, sans-serif", "color": "#1b1b1b"},
        height=height + 110,
        margin={"l": 70, "r": 20, "t": 50, "b": 60},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0 + 35 / height, "x": 0},
        barmode="stack" if stacked else "group",
        hovermode="closest",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    return drawn


def _traces(panel: Panel, named: set[str]) -> list[tuple[Any, bool]]:
    """The traces of a panel, and whether each goes by the second axis. A name is in the legend once."""
    make = {"lines": _curve, "points": _point, "bars": _bar, "stack": _lying_bar}[panel.kind]
    found: list[tuple[Any, bool]] = []
    for line in panel.lines:
        for trace in make(line, first=line.name not in named):
            found.append((trace, False))
        named.add(line.name)
    for line in panel.over:
        found.append((_over(line), True))
    if len(panel.frontier) > 1:
        found.append((_frontier(panel), False))
    return found


def _curve(line: Line, *, first: bool) -> list[Any]:
    color, dash, symbol, _ = style(line.name)
    known = [each or 0.0 for each in line.sd]
    traces = []
    if any(known):
        high = [y + sd for y, sd in zip(line.y, known, strict=True)]
        low = [y - sd for y, sd in zip(line.y, known, strict=True)]
        traces.append(
            graphs.Scatter(
                x=[*line.x, *reversed(line.x)],
                y=[*high, *reversed(low)],
                fill="toself",
                fillcolor=_faint(color),
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                showlegend=False,
                legendgroup=_text(line.name),
            )
        )
    traces.append(
        graphs.Scatter(
            x=line.x,
            y=line.y,
            name=_text(line.name),
            mode="lines+markers",
            line={"color": color, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 7},
            legendgroup=_text(line.name),
            showlegend=first,
            customdata=["one seed" if sd is None else f"± {sd:.2g}" for sd in line.sd],
            hovertemplate="%{fullData.name}, %{x}: %{y:.4g} (%{customdata})<extra></extra>",
        )
    )
    return traces


def _point(line: Line, *, first: bool) -> list[Any]:
    color, _, symbol, _ = style(line.name)
    return [
        graphs.Scatter(
            x=line.x,
            y=line.y,
            name=_text(line.name),
            mode="markers",
            marker={"color": color, "symbol": symbol, "size": 12, "line": {"width": 1, "color": "black"}},
            error_y=_deviations(line),
            legendgroup=_text(line.name),
            showlegend=first,
            hovertemplate="%{fullData.name}: %{x:.4g}, %{y:.4g}<extra></extra>",
        )
    ]


def _frontier(panel: Panel) -> Any:
    where = {line.name: (line.x[0], line.y[0]) for line in panel.lines}
    x, y = zip(*(where[name] for name in panel.frontier), strict=True)
    return graphs.Scatter(
        x=x, y=y, mode="lines", line={"color": "#888888", "dash": "dot", "width": 1}, showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip


def _bar(line: Line, *, first: bool) -> list[Any]:
    color, _, _, hatching = style(line.name)
    return [
        graphs.Bar(
            x=_places(line.x),
            y=line.y,
            name=_text(line.name),
            marker={
                "color": color,
                "line": {"width": 1, "color": "black"},
                "pattern": {"shape": hatching, "fgcolor": "black", "size": 6},
            },
            error_y=_deviations(line),
            legendgroup=_text(line.name),
            showlegend=first,
            hovertemplate="%{fullData.name}, %{x}: %{y:.4g}<extra></extra>",
        )
    ]


def _lying_bar(line: Line, *, first: bool) -> list[Any]:
    (bar,) = _bar(line, first=first)
    return [
        bar.update(
            x=line.y, y=bar.x, orientation="h", error_y=None,
            hovertemplate="%{fullData.name}, %{y}: %{x:.4g}<extra></extra>",
        )
    ]  # fmt: skip


def _over(line: Line) -> Any:
    color, _, symbol, _ = style(line.name)
    return graphs.Scatter(
        x=_places(line.x),
        y=line.y,
        name=_text(f"{line.name}, combat"),
        mode="lines+markers",
        line={"color": color, "dash": "dot", "width": 2},
        marker={"symbol": symbol, "size": 8, "line": {"width": 1, "color": "black"}},
        hovertemplate="%{fullData.name}, %{x}: %{y:.4g} %<extra></extra>",
    )


def _text(text: str) -> str:
    """A text that Plotly, which reads tags and entities, shows as it is."""
    return html.escape(visible(text), quote=False)


def _places(places: Sequence[float | str]) -> list[float | str]:
    return [_text(place) if isinstance(place, str) else place for place in places]


def _deviations(line: Line) -> dict[str, Any]:
    """Error bars; Plotly takes `None` for 0, and draws nothing where it finds no number."""
    return {"array": ["unknown" if sd is None else sd for sd in line.sd], "thickness": 1}


def _faint(color: str) -> str:
    """A colour of a band: the same, nearly transparent."""
    red, green, blue = (int(color[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {FAINT})"
