r"""One table and one figure for each experiment, made for one column of a two-column paper.

`NAME.tex` needs the packages booktabs and adjustbox: `\input{NAME}`. `NAME.pdf` is as wide as a column of
3.25 inches: `\includegraphics{NAME}`.
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

MEASURES = 2
"""Panels side by side in a column."""

NAME = 45
"""Maximum characters of a method's name."""


def table_text(figure: Figure) -> str:
    """Return the final values of an experiment as a LaTeX table: a row per method, a column per measure.

    The deviation has two significant digits, and the mean ends at the same digit. With one seed, the mean has
    three significant digits.
    """
    panels = [panel for row in figure.rows for panel in row if panel.y in HEADS]
    values: dict[tuple[str, str], dict[str, str]] = {}
    for panel in panels:
        for name, head, value in _final_values(panel):
            values.setdefault((panel.title, name), {})[head] = value
    heads = list(dict.fromkeys(head for cells in values.values() for head in cells))
    body, place = [], ""
    for (title, name), cells in sorted(values.items(), key=lambda each: _place_of(panels, each[0][0])):
        if title != place:
            body.append(rf"\multicolumn{{{len(heads) + 1}}}{{l}}{{\emph{{{latex(drawable(title))}}}}} \\")
            place = title
        method = latex(shorten(METHODS.get(name, drawable(name)), NAME))
        body.append(" & ".join([method, *(cells.get(head, "--") for head in heads)]) + r" \\")
    return "\n".join(
        [
            r"% Needs \usepackage{booktabs,adjustbox}.",
            r"\begin{table}[t]",
            r"\centering\footnotesize",
            rf"\caption{{{latex(drawable(figure.title))}: {_describe_values(panels)}.}}",
            rf"\label{{tab:{figure.name}}}",
            r"\begin{adjustbox}{max width=\columnwidth}",
            rf"\begin{{tabular}}{{@{{}}l{'r' * len(heads)}@{{}}}}",
            r"\toprule",
            " & ".join(["", *heads]) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
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


def _final_values(panel: Panel) -> Iterator[tuple[str, str, str]]:
    """Yield method, head and value of each curve's last checkpoint, or of each bar. Values that are too large
    to be drawn are left out."""
    head = HEADS[panel.y]
    for series in panel.series:
        found = [*zip(series.x, series.values, strict=True)]
        for x, value in found[-1:] if panel.kind == "curves" else found:
            if abs(value.mean) < LIMIT:
                known = value.sd if value.sd is not None and value.sd < LIMIT else None
                mean, sd = round_together(value.mean, known)
                name = head if panel.kind == "curves" else f"{head}, {latex(str(x))}"
                yield series.name, name, f"${mean}$" if sd is None else rf"${mean} \pm {sd}$"


def _place_of(panels: Sequence[Panel], title: str) -> int:
    return next(number for number, panel in enumerate(panels) if panel.title == title)


def _describe_values(panels: Sequence[Panel]) -> str:
    counts = sorted({series.seeds for panel in panels for series in panel.series})
    if counts == [1]:
        return "final values of one seed"
    return rf"final mean $\pm$ sd over {'--'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds"
