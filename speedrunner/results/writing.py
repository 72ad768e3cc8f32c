"""Tables as CSV. Names and texts of models stay in their cells, and are no formulas."""

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


@cache
def _captions() -> dict[str, str]:
    found: dict[str, str] = read_yaml_file(Path(__file__).with_name("captions.yaml"))
    return found


def caption(name: str, **values: object) -> str:
    """Return the caption of a table or figure, with these values."""
    return _captions()[name].format(**values)


class Table(msgspec.Struct, frozen=True):
    """One table, written as `NAME.csv`."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: list[tuple[Cell, ...]]


def list_rows(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows by column, a named index included: plain values, `None` if missing."""
    whole = (frame.reset_index() if frame.index.name else frame).astype(object)
    rows: list[Any] = whole.where(whole.notna(), None).to_dict("records")
    return rows


def table_of(name: str, caption: str, frame: pandas.DataFrame) -> Table:
    """Return a frame as a table; missing values are `None`, booleans 0 or 1."""
    values = [row.values() for row in list_rows(frame)]
    rows = [tuple(int(cell) if isinstance(cell, bool) else cell for cell in row) for row in values]
    return Table(name, caption, [*frame.columns], rows)


def table_files(tables: Sequence[Table]) -> dict[str, bytes]:
    """Return the files of tables by their paths in the report's folder."""
    return {f"tables/{table.name}.csv": csv_text(table).encode() for table in tables}


def csv_text(table: Table) -> str:
    """Return the table as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return file.getvalue()


def _plain(cell: Cell) -> Cell:
    """Return a cell for CSV: one line, and never a formula for a spreadsheet."""
    if isinstance(cell, str):
        text = " ".join(visible(cell).split())
        # A semicolon separates cells where the comma is the decimal point; East Asian spreadsheets accept
        # wide signs.
        return re.sub(r"(^|;\s*)(?=[=+\-@＝＋－＠])", r"\1'", text)
    return float(f"{cell:.10g}") if isinstance(cell, float) else cell
