r"""One table and one figure for each experiment, made for one column of a two-column paper.

`NAME.tex` needs the package booktabs: `\input{NAME}`. `NAME.pdf` is as wide as a column of 3.25 inches:
`\includegraphics{NAME}`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from math import floor, log10

from msgspec.structs import replace

from speedrunner.config.console import shorten
from speedrunner.pages.panels import LABELS, OUTPUT, SCORE, USD, Figure, Line, Panel
from speedrunner.pages.printing import column_pdf
from speedrunner.pages.scales import MOST, drawable
from speedrunner.results.conditions import ALL_PUBLIC, ASI_STYLE, OFF, OURS, REACT
from speedrunner.results.writing import latex

METHODS = {
    REACT: "ReAct",
    "opo": "OPO",
    "asi": "ASI",
    "asi_replay": "ASI, replay",
    "voyager": "Voyager",
    OURS: "SpeedRunner",
    OFF: "no interpreter",
    ASI_STYLE: "ASI-style prompt",
    ALL_PUBLIC: "all skills public",
}
"""Names of methods in a paper. Others keep their names."""

HEADS = {LABELS[SCORE]: "Score", LABELS[OUTPUT]: "Output tok./ep.", LABELS[USD]: "USD/ep."}
"""Heads of columns, by the names of axes."""

CHEAP = 0.1
"""USD per episode below which a column has USD per 1,000 episodes."""

PLACES = 4
"""Maximum number of environments in a table and a figure; further ones follow in NAME_2 and so on."""

MEASURES = 2
"""Panels side by side in a column."""

CAPTION = 86
"""Maximum characters of a caption, which fit on two lines of a column after `Table 1:`."""

NAME, LONG_NAME = 14, 45
"""Maximum characters of a method's name in front of `MANY` measures, and in a separate row."""

MANY = 3

LABEL = 18
"""Maximum characters of a line of an environment's name at an axis."""


def camera_ready(figure: Figure) -> dict[str, bytes]:
    """Return NAME.tex and NAME.pdf of an experiment by their names; empty for other figures. The same figure
    gives the same bytes."""
    found = {}
    for part in _split(figure) if figure.is_experiment else ():
        found[f"{part.name}.tex"] = table_text(part).encode()
        found[f"{part.name}.pdf"] = column_pdf(_stack_places(part), METHODS)
    return found


def table_text(figure: Figure) -> str:
    """Return the final values of an experiment as a LaTeX table: a row per method, a column per measure.

    The deviation has two significant digits, and the mean ends at the same digit. With one seed, the mean has
    three significant digits.
    """
    places = _by_place(figure)
    columns: dict[str, dict[tuple[str, str], tuple[float, float | None]]] = {}
    methods: dict[str, dict[str, None]] = {}
    for place, panels in places.items():
        for panel in panels:
            for line in panel.lines:
                methods.setdefault(place, {})[line.name] = None
                for head, mean, sd in _final_values(panel, line):
                    columns.setdefault(head, {})[place, line.name] = mean, sd
    scaled = dict(_scale_usd(head, column) for head, column in columns.items())
    width = 2 * len(scaled) + 1
    body: list[str] = []
    for place, names in methods.items():
        title = latex(shorten(drawable(place), LONG_NAME))
        body += [r"\addlinespace"] if body else []
        body.append(rf"\multicolumn{{{width}}}{{@{{}}l}}{{\emph{{{title}}}}} \\")
        for name in names:
            cells = [_cell(column.get((place, name))) for column in scaled.values()]
            body += _rows(METHODS.get(name, drawable(name)), cells, width)
    heads = " & ".join(["", *(rf"\multicolumn{{2}}{{c}}{{{head}}}" for head in scaled)])
    return "\n".join(
        [
            rf"% Needs \usepackage{{booktabs}}. The figure: \includegraphics{{{figure.name}}}",
            r"\begin{table}[t]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}\setlength{\belowcaptionskip}{4pt}",
            rf"\caption{{{_caption(figure)}}}\label{{tab:{figure.name}}}",
            rf"\begin{{tabular}}{{@{{}}l{'r@{}l' * len(scaled)}@{{}}}}",
            r"\toprule",
            heads + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def round_together(mean: float, sd: float | None) -> tuple[str, str | None]:
    """Return a mean and its deviation, rounded to the same digit, which the deviation chooses.

    The deviation has two significant digits, but the mean has at most four after its first. Without a
    deviation, or with one of 0, the mean has three significant digits.
    """
    size = floor(log10(abs(mean))) if mean else 0
    decimals = 2 - size if mean else 0
    if sd:
        decimals = 1 - int(f"{sd:.1e}".partition("e")[2])
        decimals = min(decimals, 4 - size) if mean else decimals
    return _fixed(mean, decimals), None if sd is None else _fixed(sd, decimals)


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals):z.{max(decimals, 0)}f}"


def _final_values(panel: Panel, line: Line) -> Iterator[tuple[str, float, float | None]]:
    """Yield head, mean and deviation of a line's last checkpoint, or of each of its bars. Values that are too
    large to be drawn are left out."""
    head = HEADS.get(panel.y, latex(panel.y))
    found = [*zip(line.x, line.y, line.sd, strict=True)]
    for x, y, sd in found[-1:] if panel.kind == "lines" else found:
        if abs(y) < MOST:
            kept = sd if sd is not None and sd < MOST else None
            yield head if panel.kind == "lines" else f"{head}, {latex(str(x))}", y, kept


def _scale_usd(
    head: str, column: Mapping[tuple[str, str], tuple[float, float | None]]
) -> tuple[str, Mapping[tuple[str, str], tuple[float, float | None]]]:
    """Return a column in USD per 1,000 episodes if its values are small."""
    if head != HEADS[LABELS[USD]] or max(mean for mean, _ in column.values()) >= CHEAP:
        return head, column
    found = {key: (mean * 1000, sd if sd is None else sd * 1000) for key, (mean, sd) in column.items()}
    return "USD/1k ep.", found


def _cell(value: tuple[float, float | None] | None) -> str:
    if value is None:
        return "-- & "
    mean, sd = round_together(*value)
    return f"${mean}$ & " + (rf"$\,\pm\,{sd}$" if sd is not None else "")


def _rows(method: str, cells: Sequence[str], width: int) -> list[str]:
    """Return a method's rows. A long name has a separate row if there are many columns."""
    name = latex(shorten(method, LONG_NAME))
    if len(method) <= NAME or len(cells) < MANY:
        return [" & ".join([name, *cells]) + r" \\"]
    return [rf"\multicolumn{{{width}}}{{@{{}}l}}{{{name}}} \\", " & ".join(["", *cells]) + r" \\"]


def _caption(figure: Figure) -> str:
    """Return a caption of at most `CAPTION` characters; a long title, which names the model, is shortened."""
    counts = sorted({line.seeds for row in figure.rows for panel in row for line in panel.lines})
    seeds = "one seed" if counts == [1] else f"{'--'.join(map(str, {counts[0]: 0, counts[-1]: 0}))} seeds"
    names = {panel.x: None for row in figure.rows for panel in row if panel.kind == "bars"}
    by = "".join(f", by {latex(name)}" for name in names)
    end = f": final values of {seeds}{by}." if counts == [1] else rf": final mean $\pm$ sd over {seeds}{by}."
    room = CAPTION - len(end.replace(r"$\pm$", "+"))
    return latex(shorten(drawable(figure.title), room)) + end


def _split(figure: Figure) -> Iterator[Figure]:
    """Yield the figure in parts of at most `PLACES` environments."""
    places = list(_by_place(figure))
    for start in range(0, len(places), PLACES):
        own = set(places[start : start + PLACES])
        rows = [[panel for panel in row if panel.title in own] for row in figure.rows]
        name = figure.name if not start else f"{figure.name}_{start // PLACES + 1}"
        yield replace(figure, name=name, rows=[row for row in rows if row])


def _by_place(figure: Figure) -> dict[str, list[Panel]]:
    """Return the panels of each environment."""
    found: dict[str, list[Panel]] = {}
    for panel in (panel for row in figure.rows for panel in row):
        found.setdefault(panel.title, []).append(panel)
    return found


def _stack_places(figure: Figure) -> Figure:
    """Return the figure with a row for each environment, named at the y axis, and a column for each of the
    first measures, named above it."""
    rows = []
    for place, panels in _by_place(figure).items():
        label = textwrap.fill(drawable(place), LABEL)
        rows.append(
            [
                replace(panel, title=panel.y, y=label) if panel.kind == "lines" else panel
                for panel in panels[:MEASURES]
            ]
        )
    return replace(figure, rows=rows)
