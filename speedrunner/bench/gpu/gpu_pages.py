"""A record of `speedrunner bench gpu` as a Markdown page (docs/gpu.md, "Measured")."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from speedrunner.bench.measurement import NOT_MEASURED, MeasuredTable, figure_cells, table_cells
from speedrunner.bench.record import Record, date_of
from speedrunner.plain.console import visible
from speedrunner.store.files import write_atomic

PAGE = "record.md"
"""The Markdown page in a record's folder."""

Cells = Sequence[Sequence[str]]


def tables_of(record: Record) -> dict[str, Cells]:
    """Return the record's tables by title, with headings in the first row.

    Tables of several steps with the same name are one table.
    """
    done = [(step.step, step.measured) for step in record.steps.values() if step.measured is not None]
    failed = [(step.step, step.reason) for step in record.steps.values() if step.measured is None]
    tables: dict[str, MeasuredTable] = {}
    for _, measured in done:
        for table in measured.tables:
            before = tables[table.name].rows if table.name in tables else []
            tables[table.name] = replace(table, rows=[*before, *table.rows])
    figures = [
        replace(figure, name=f"{step}: {figure.name}")
        for step, measured in done
        for figure in measured.figures
    ]
    found: dict[str, Cells] = {"environment": [("name", "value"), *record.subject.environment.items()]}
    found |= {name: table_cells(table) for name, table in tables.items()}
    if figures:
        found["figures"] = figure_cells(figures)
    if failed:
        found[NOT_MEASURED] = [("step", "reason"), *failed]
    return found


def bench_command(record: Record, *more: str) -> str:
    """Return the command that creates and continues the record."""
    return shlex.join(["speedrunner", "bench", "gpu", *record.subject.overrides, *more])


def title_of(record: Record) -> str:
    """Return the record's title: model, hardware, and the time at which the last step began."""
    subject = record.subject
    dates = [date_of(step.began) for step in record.steps.values() if step.measured is not None]
    when = f", {dates[-1]}" if dates else ""
    return f"{subject.model} on {subject.hardware}{when}"


def engine_line(record: Record) -> str:
    """Return the versions of the engine."""
    return ", ".join(f"{name} {version}" for name, version in record.subject.engine.items())


def as_text(record: Record) -> str:
    """Return the record as a section of a Markdown page, with the command that writes it."""
    command = bench_command(record, "--out", "DIR")
    lines = [f"### {title_of(record)}", "", f"{engine_line(record)}. One command writes all of it:", ""]
    lines += ["```", command, "```", ""]
    for step in record.steps.values():
        if step.measured is not None:
            when = f"{date_of(step.began)}, {step.seconds:.0f} s"
            lines.append(f"- `{step.step}` ({when}): {step.measured.title}")
            lines += [f"    - {note}" for note in step.measured.notes]
    for title, cells in tables_of(record).items():
        lines += ["", f"#### {title.capitalize()}", "", *_markdown(cells)]
    return visible("\n".join(lines) + "\n")


def write_page(record: Record) -> None:
    """Write the Markdown page into the record's folder. Raises `StorageError`."""
    write_atomic(record.folder / PAGE, as_text(record).encode())


def _markdown(rows: Cells) -> list[str]:
    """Return a Markdown table with aligned columns, so that it also reads well on a terminal."""
    head, *others = [["\\|".join(cell.split("|")) for cell in row] for row in rows]
    lines = []
    for heading, *cells in zip(head, *others, strict=True):
        is_number = all(cell[:1].isdigit() or cell == NOT_MEASURED for cell in cells)
        width = max(3, *map(len, (heading, *cells)))
        ruler = "-" * (width - 1) + ":" if is_number else "-" * width
        pad = str.rjust if is_number else str.ljust
        lines.append([pad(heading, width), ruler, *(pad(cell, width) for cell in cells)])
    return ["| " + " | ".join(cells) + " |" for cells in zip(*lines, strict=True)]
