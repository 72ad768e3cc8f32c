r"""One table and one figure for each experiment, made for one column of a two-column paper.

`NAME.tex` needs the package booktabs: `\input{NAME}`. `NAME.pdf` is as wide as a column of 3.25 inches:
`\includegraphics{NAME}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10

from msgspec.structs import replace

from speedrunner.config.console import shorten
from speedrunner.pages.figures import LABELS, OUTPUT, SCORE, USD, Figure, Panel
from speedrunner.pages.plots import LIMIT, drawable
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
"""Heads of columns by the names of measures. Panels of other measures are only in the figure."""

CHEAP = 0.1
"""USD per episode below which a column has USD per 1,000 episodes."""

MEASURES = 2
"""Panels side by side in a column."""

CAPTION = 86
"""Maximum characters of a caption, which fit on two lines of a column after `Table 1:`."""

NAME, LONG_NAME = 14, 45
"""Maximum characters of a method's name in front of `MANY` measures, and in a separate row."""

MANY = 3

Value = tuple[float, float | None]
"""Mean, and deviation over seeds."""


def table_text(figure: Figure) -> str:
    """Return the final values of an experiment as a LaTeX table: a row per method, a column per measure.

    The deviation has two significant digits, and the mean ends at the same digit. With one seed, the mean has
    three significant digits.
    """
    columns: dict[str, dict[tuple[str, str], Value]] = {}
    methods: dict[str, dict[str, None]] = {}
    for panel in (panel for row in figure.rows for panel in row if panel.y in HEADS):
        methods.setdefault(panel.title, {}).update(dict.fromkeys(series.name for series in panel.series))
        for name, head, value in _final_values(panel):
            columns.setdefault(head, {})[panel.title, name] = value
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


def stack_places(figure: Figure) -> Figure:
    """Return the figure with a row for each environment, named at the y axis, and a column for each of the
    first measures, named above it."""
    places: dict[str, list[Panel]] = {}
    for panel in (panel for row in figure.rows for panel in row):
        is_curve = panel.kind == "curves"
        shown = replace(panel, title=panel.y, y=drawable(panel.title)) if is_curve else panel
        places.setdefault(panel.title, []).append(shown)
    return replace(figure, rows=[panels[:MEASURES] for panels in places.values()])


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


def _final_values(panel: Panel) -> Iterator[tuple[str, str, Value]]:
    """Yield method, head, mean and deviation of each curve's last checkpoint, or of each bar. Values that are
    too large to be drawn are left out."""
    head = HEADS[panel.y]
    for series in panel.series:
        found = [*zip(series.x, series.values, strict=True)]
        for x, value in found[-1:] if panel.kind == "curves" else found:
            if abs(value.mean) < LIMIT:
                sd = value.sd if value.sd is not None and value.sd < LIMIT else None
                name = head if panel.kind == "curves" else f"{head}, {latex(str(x))}"
                yield series.name, name, (value.mean, sd)


def _scale_usd(head: str, column: dict[tuple[str, str], Value]) -> tuple[str, dict[tuple[str, str], Value]]:
    """Return a column in USD per 1,000 episodes if its values are small."""
    if head != HEADS[LABELS[USD]] or max(mean for mean, _ in column.values()) >= CHEAP:
        return head, column
    found = {key: (mean * 1000, sd if sd is None else sd * 1000) for key, (mean, sd) in column.items()}
    return "USD/1k ep.", found


def _cell(value: Value | None) -> str:
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
    panels = [panel for row in figure.rows for panel in row]
    counts = sorted({series.seeds for panel in panels for series in panel.series})
    seeds = "one seed" if counts == [1] else f"{'--'.join(map(str, {counts[0]: 0, counts[-1]: 0}))} seeds"
    names = {panel.x: None for panel in panels if panel.kind == "bars"}
    by = "".join(f", by {latex(name)}" for name in names)
    end = f": final values of {seeds}{by}." if counts == [1] else rf": final mean $\pm$ sd over {seeds}{by}."
    room = CAPTION - len(end.replace(r"$\pm$", "+"))
    return latex(shorten(drawable(figure.title), room)) + end
