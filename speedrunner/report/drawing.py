"""Figures drawn by Plotly, in a style that survives greyscale and two columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speedrunner.report.figures import Figure, Line, Panel

if TYPE_CHECKING:
    import plotly.graph_objects as graphs

# Okabe and Ito's colours, for people who see few; each has another lightness, dash, marker and hatching.
STYLES: dict[str, tuple[str, str, str, str]] = {
    "react": ("#7f7f7f", "dot", "circle", "."),
    "opo": ("#e69f00", "dash", "square", "/"),
    "asi": ("#56b4e9", "dashdot", "diamond", "\\"),
    "asi_replay": ("#cc79a7", "longdash", "cross", "x"),
    "voyager": ("#009e73", "longdashdot", "triangle-up", "-"),
    "speedrunner": ("#0b3c8a", "solid", "star", ""),
    "speedrunner-interpreter_off": ("#d55e00", "dash", "x", "+"),
    "speedrunner-prompt_asi_style": ("#56b4e9", "dot", "diamond", "\\"),
    "speedrunner-visibility_all_public": ("#009e73", "dashdot", "square", "/"),
    "uncached": ("#d55e00", "solid", "circle", ""),
    "cached": ("#c9c9c9", "dot", "square", "/"),
    "output": ("#0b3c8a", "dash", "diamond", "x"),
}
"""Colour, dash, marker and hatching by name."""

OTHERS = (
    ("#e69f00", "dash", "square", "/"),
    ("#009e73", "dot", "x", "x"),
    ("#cc79a7", "dashdot", "cross", "-"),
)

PANEL_HEIGHT = 270
FONT = 13


def draw(figure: Figure) -> graphs.Figure:
    """A figure as Plotly has it."""
    from plotly.subplots import make_subplots

    rows, columns = len(figure.rows), max(map(len, figure.rows))
    specs = [
        [{"secondary_y": bool(row[n].over)} if n < len(row) else None for n in range(columns)]
        for row in figure.rows
    ]
    titles = [row[n].title if n < len(row) else "" for row in figure.rows for n in range(columns)]
    drawn = make_subplots(
        rows=rows,
        cols=columns,
        specs=specs,
        subplot_titles=titles,
        vertical_spacing=min(0.12, 0.5 / rows),
        horizontal_spacing=0.3 / columns if columns > 1 else 0.1,
    )
    named: set[str] = set()
    for number, row in enumerate(figure.rows, start=1):
        for column, panel in enumerate(row, start=1):
            for trace, second in _traces(panel, named):
                drawn.add_trace(
                    trace, row=number, col=column, **({"secondary_y": second} if panel.over else {})
                )
            drawn.update_xaxes(title_text=panel.x, row=number, col=column)
            side = {"secondary_y": False} if panel.over else {}
            drawn.update_yaxes(title_text=panel.y, rangemode="tozero", row=number, col=column, **side)
            if panel.over:
                drawn.update_yaxes(
                    title_text=panel.over_y, rangemode="tozero", row=number, col=column, secondary_y=True
                )
    stacked = any(panel.kind == "stack" for row in figure.rows for panel in row)
    drawn.update_layout(
        template="plotly_white",
        font={"size": FONT, "family": "Helvetica, Arial, sans-serif"},
        height=PANEL_HEIGHT * rows + 110,
        margin={"l": 70, "r": 20, "t": 50, "b": 60},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0 + 60 / (PANEL_HEIGHT * rows), "x": 0},
        barmode="stack" if stacked else "group",
        hovermode="closest",
    )
    return drawn


def _style(name: str) -> tuple[str, str, str, str]:
    return STYLES.get(name) or OTHERS[sum(name.encode()) % len(OTHERS)]


def _traces(panel: Panel, named: set[str]) -> list[tuple[Any, bool]]:
    """The traces of a panel, and whether each goes by the second axis. A name is in the legend once."""
    make = {"lines": _curve, "points": _point, "bars": _bar, "stack": _bar}[panel.kind]
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
    import plotly.graph_objects as graphs

    color, dash, symbol, _ = _style(line.name)
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
                legendgroup=line.name,
            )
        )
    traces.append(
        graphs.Scatter(
            x=line.x,
            y=line.y,
            name=line.name,
            mode="lines+markers",
            line={"color": color, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 7},
            legendgroup=line.name,
            showlegend=first,
            customdata=[[sd if sd is not None else float("nan")] for sd in line.sd],
            hovertemplate="%{fullData.name}, %{x}: %{y:.4g} ± %{customdata[0]:.2g}"
            f" ({line.seeds} seeds)<extra></extra>",
        )
    )
    return traces


def _point(line: Line, *, first: bool) -> list[Any]:
    import plotly.graph_objects as graphs

    color, _, symbol, _ = _style(line.name)
    (sd,) = line.sd
    return [
        graphs.Scatter(
            x=line.x,
            y=line.y,
            name=line.name,
            mode="markers",
            marker={"color": color, "symbol": symbol, "size": 12, "line": {"width": 1, "color": "black"}},
            error_y={"array": [sd], "thickness": 1} if sd is not None else None,
            legendgroup=line.name,
            showlegend=first,
            hovertemplate="%{fullData.name}: %{x:.4g}, %{y:.4g}<extra></extra>",
        )
    ]


def _frontier(panel: Panel) -> Any:
    import plotly.graph_objects as graphs

    where = {line.name: (line.x[0], line.y[0]) for line in panel.lines}
    x, y = zip(*(where[name] for name in panel.frontier), strict=True)
    return graphs.Scatter(
        x=x, y=y, mode="lines", line={"color": "#888888", "dash": "dot", "width": 1}, showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip


def _bar(line: Line, *, first: bool) -> list[Any]:
    import plotly.graph_objects as graphs

    color, _, _, hatching = _style(line.name)
    errors = [each or 0.0 for each in line.sd]
    return [
        graphs.Bar(
            x=line.x,
            y=line.y,
            name=line.name,
            marker={
                "color": color,
                "line": {"width": 1, "color": "black"},
                "pattern": {"shape": hatching, "fgcolor": "black", "size": 6},
            },
            error_y={"array": errors, "thickness": 1} if any(errors) else None,
            legendgroup=line.name,
            showlegend=first,
            hovertemplate="%{fullData.name}, %{x}: %{y:.4g}<extra></extra>",
        )
    ]


def _over(line: Line) -> Any:
    import plotly.graph_objects as graphs

    color, _, symbol, _ = _style(line.name)
    return graphs.Scatter(
        x=line.x,
        y=line.y,
        name=f"{line.name}, combat",
        mode="lines+markers",
        line={"color": color, "dash": "dot", "width": 2},
        marker={"symbol": symbol, "size": 8, "line": {"width": 1, "color": "black"}},
        hovertemplate="%{fullData.name}, %{x}: %{y:.4g} %<extra></extra>",
    )


def _faint(color: str) -> str:
    """A colour of a band: the same, nearly transparent."""
    red, green, blue = (int(color[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.13)"
