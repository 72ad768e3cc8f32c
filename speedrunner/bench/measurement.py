"""The result of a benchmark or probe, as data: figures with their targets, and tables of records.

A measuring function returns one `Measurement`; `as_text` and `as_json` print it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from speedrunner.plain.console import align_columns

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class MeasuredFigure:
    """One measured value, with its target.

    Attributes:
        name: the measured quantity, with its unit.
        value: `None` if it could not be measured.
        at_least, at_most: its target, if any.
        form: format specification for users; empty for one that suits its size.
    """

    name: str
    value: float | None
    at_least: float | None = None
    at_most: float | None = None
    form: str = ""

    @property
    def bounds(self) -> dict[str, float]:
        """Return the bounds that are set, by name."""
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    @property
    def met(self) -> bool | None:
        """Return whether the target is reached; `None` if there is none."""
        if not self.bounds:
            return None
        least, most = self.bounds.get("at_least", -inf), self.bounds.get("at_most", inf)
        return self.value is not None and least <= self.value <= most

    @property
    def verdict(self) -> str:
        """Return the target and whether it is met, for users."""
        texts = (
            f"{name.replace('_', ' ')} {_format(bound, self.form)}" for name, bound in self.bounds.items()
        )
        return f"{' and '.join(texts)}: {'met' if self.met else 'MISSED'}" if self.bounds else ""


@dataclass(frozen=True)
class MeasuredTable:
    """Records as users see them: one line each, or one column each.

    Attributes:
        name: key of the records in JSON; empty if `facts` have them already.
        rows: records, or mappings.
        columns: fields of the records, each with a colon and its format if it needs one; empty: all fields.
        title: a line above the table.
        turned: whether headings are at the left, and each record is a column.
    """

    name: str
    rows: Sequence[Any]
    columns: Sequence[str] = ()
    title: str = ""
    turned: bool = False


@dataclass
class Measurement:
    """The result of one command.

    Attributes:
        title: the subject and conditions, in one line.
        figures: values that may have a target.
        tables: records.
        facts: further values for programs, by name: numbers, texts, records, lists of them.
        notes: further sentences for users.
    """

    title: str
    figures: list[MeasuredFigure] = field(default_factory=list)
    tables: list[MeasuredTable] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        """Return whether every target is reached; `None` without any."""
        verdicts = [figure.met for figure in self.figures if figure.bounds]
        return all(verdicts) if verdicts else None


def as_json(measurement: Measurement) -> str:
    """Return one JSON object: facts and tables by their names, then `figures` and `met`."""
    tables = {table.name: table.rows for table in measurement.tables if table.name}
    figures = [
        {"name": figure.name, "value": figure.value, **figure.bounds, "met": figure.met}
        for figure in measurement.figures
    ]
    parts = {**measurement.facts, **tables, "figures": figures, "met": measurement.met}
    return msgspec.json.encode(parts).decode()


def as_text(measurement: Measurement) -> str:
    """Return title, tables with rows, figures with their targets, and notes, for users."""
    blocks = [[measurement.title]]
    for table in (table for table in measurement.tables if table.rows):
        lines = _align(_table_cells(table))
        blocks.append([table.title, *lines] if table.title else lines)
    if figures := measurement.figures:
        cells = [[figure.name, _format(figure.value, figure.form), figure.verdict] for figure in figures]
        blocks.append(_align([["", "measured", "target"], *cells]))
    blocks.append(measurement.notes)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _align(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table. From the first column of numbers on, all are aligned right."""
    are_numbers = [
        all(cell[:1].isdigit() or cell == NOT_MEASURED for cell in column)
        for column in zip(*cells[1:], strict=True)
    ]
    return align_columns(cells, left=[*are_numbers, True].index(True))


def _table_cells(table: MeasuredTable) -> list[list[str]]:
    """Return the texts of a table, with headings in the first row or, if it is turned, in the first
    column."""
    rows = msgspec.to_builtins(table.rows)
    fields = [column.partition(":") for column in table.columns or rows[0]]
    headings = [name.replace("_", " ") for name, _, _ in fields]
    cells = [headings, *([_format(row[name], form) for name, _, form in fields] for row in rows)]
    return [list(row) for row in zip(*cells, strict=True)] if table.turned else cells


def _format(value: Any, form: str = "") -> str:
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not form:
        form = ".0f" if abs(value) >= 1000 else ".4g"
    return format(value, form)
