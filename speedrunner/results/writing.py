"""Tables as CSV and LaTeX (booktabs). Names and texts of models are escaped in both."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from speedrunner.plain.console import visible
from speedrunner.plain.plain_yaml import read_yaml_file

if TYPE_CHECKING:
    import pandas

Cell = str | int | float | None
"""`None`: unknown or missing."""

LONG = 40
"""Rows above which a LaTeX table may span several pages."""

_SPECIAL = {
    **{character: rf"\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "[": "{[}", "*": "{*}",  # else LaTeX would read them as arguments of the row end above
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
}  # fmt: skip


@cache
def _captions() -> dict[str, str]:
    found: dict[str, str] = read_yaml_file(Path(__file__).with_name("captions.yaml"))
    return found


def caption(name: str, **values: object) -> str:
    """Return the caption of a table or figure, with these values."""
    return _captions()[name].format(**values)


class Table(msgspec.Struct, frozen=True):
    """One table, written as `NAME.csv` and `NAME.tex`.

    Attributes:
        flagged: numbers of rows with a dagger in LaTeX, which the caption explains.
        shown: columns in LaTeX; empty: all.
    """

    name: str
    caption: str
    columns: Sequence[str]
    rows: list[tuple[Cell, ...]]
    flagged: frozenset[int] = frozenset()
    shown: Sequence[str] = ()


def list_rows(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows by column, a named index included: plain values, `None` if missing."""
    whole = (frame.reset_index() if frame.index.name else frame).astype(object)
    rows: list[Any] = whole.where(whole.notna(), None).to_dict("records")
    return rows


def table_of(
    name: str, caption: str, frame: pandas.DataFrame, flagged: frozenset[int] = frozenset()
) -> Table:
    """Return a frame as a table; missing values are `None`, booleans 0 or 1."""
    values = [row.values() for row in list_rows(frame)]
    rows = [tuple(int(cell) if isinstance(cell, bool) else cell for cell in row) for row in values]
    return Table(name, caption, [*frame.columns], rows, flagged)


def table_files(tables: Sequence[Table], caveats: Sequence[str] = ()) -> dict[str, bytes]:
    """Return the files of tables by their paths in the report's folder.

    Args:
        caveats: appended to each caption.
    """
    contents = {}
    for table in tables:
        contents[f"tables/{table.name}.csv"] = csv_text(table).encode()
        caption = " ".join([table.caption, *(f"{each}." for each in caveats)])
        with_caveat = msgspec.structs.replace(table, caption=caption)
        contents[f"tables/{table.name}.tex"] = latex_text(with_caveat).encode()
    return contents


def csv_text(table: Table) -> str:
    """Return the table as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return file.getvalue()


def latex_text(table: Table) -> str:
    """Return the table as LaTeX, for `\\usepackage{booktabs}`; a long one also needs `longtable`."""
    columns = [*(table.shown or table.columns)]
    places = [table.columns.index(name) for name in columns]
    rows = [[latex(row[place]) for place in places] for row in table.rows]
    for number in table.flagged:
        rows[number][0] += r"$^\dagger$"
    kinds = "".join("l" if any(map(_is_text, column)) else "r" for column in zip(*rows, strict=True))
    kinds = kinds or "l" * len(columns)
    head = [r"\toprule", " & ".join(map(latex, columns)) + r" \\", r"\midrule"]
    body = [" & ".join(row) + r" \\" for row in rows]
    caption = rf"\caption{{{latex(table.caption)}}}\label{{tab:{table.name}}}"
    if len(rows) >= LONG:
        parts = [rf"\begin{{longtable}}{{{kinds}}}", caption + r"\\", *head, r"\endhead", r"\bottomrule"]
        parts += [r"\endfoot", *body, r"\end{longtable}"]
    else:
        parts = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{kinds}}}", *head, *body]
        parts += [r"\bottomrule", r"\end{tabular}", caption, r"\end{table}"]
    return "\n".join(parts) + "\n"


def latex(cell: Cell) -> str:
    """Return a cell in LaTeX, with a readable number of digits."""
    if cell is None:
        return "--"
    if isinstance(cell, str):
        return "".join(_SPECIAL.get(each, each) for each in " ".join(visible(cell).split()))
    if isinstance(cell, int):
        return f"${cell}$"
    if cell and abs(cell) < 1e-3:
        digits, _, power = f"{cell:.1e}".partition("e")
        return rf"${digits}\times10^{{{int(power)}}}$"
    return f"${cell:.0f}$" if abs(cell) >= 999.5 else f"${cell:.3g}$"


def _plain(cell: Cell) -> Cell:
    """Return a cell for CSV: one line, and never a formula for a spreadsheet."""
    if isinstance(cell, str):
        text = " ".join(visible(cell).split())
        # A semicolon separates cells where the comma is the decimal point; East Asian spreadsheets accept
        # wide signs.
        return re.sub(r"(^|;\s*)(?=[=+\-@＝＋－＠])", r"\1'", text)
    return float(f"{cell:.10g}") if isinstance(cell, float) else cell


def _is_text(cell: str) -> bool:
    return not cell.startswith("$") and cell != "--"
