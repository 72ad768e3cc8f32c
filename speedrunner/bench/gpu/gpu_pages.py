"""A record of `speedrunner bench gpu` as a Markdown page (docs/gpu.md, "Measured") and as tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from speedrunner.bench.gpu.record import Record, StepRecord, date_of, read_record_folder
from speedrunner.bench.measurement import NOT_MEASURED, Figure, Table, figure_cells, table_cells
from speedrunner.config.console import visible
from speedrunner.results import writing
from speedrunner.store.files import write_atomic

PARTS = {
    "Machine": ("environment",),
    "Start": ("start-",),
    "Capacity": ("capacity",),
    "Tool calls and grammar": ("tools", "grammar"),
    "Prefix cache": ("cache-", "half-cache"),
    "Rollouts": ("rollout-", "no-cache", "fp8"),
    "Long prompts": ("long-prompts",),
}
"""Steps of each part of a page, by prefixes of their names."""

PAGE = "record.md"
"""The Markdown page in a record's folder."""

Cells = Sequence[Sequence[str]]


class Part(NamedTuple):
    """One part of a page: its steps in order of time, and their measurements.

    Attributes:
        tables: tables by name; tables of several steps with the same name and columns are one table. Headings
            are in the first row.
    """

    title: str
    steps: list[StepRecord]
    tables: list[tuple[str, Cells]]
    notes: list[str]


def parts_of(record: Record) -> list[Part]:
    """Return the measurements part by part, including those that are missing; empty parts are left out."""
    done = sorted(
        (each for each in record.steps.values() if each.status == "done" and each.measured is not None),
        key=lambda each: each.began,
    )
    parts = []
    for title, names in PARTS.items():
        if steps := [each for each in done if each.step.startswith(names)]:
            parts.append(_part(title, steps))
    missing = [
        (name, f"{step.status}: {step.reason}")
        for name, step in sorted(record.steps.items())
        if step.status != "done"
    ]
    if missing:
        parts.append(Part("Not measured", [], [("", [("step", "reason"), *missing])], []))
    return parts


def _part(title: str, steps: list[StepRecord]) -> Part:
    tables: dict[tuple[str, ...], Table] = {}
    figures: list[Figure] = []
    notes: list[str] = []
    for step in steps:
        assert step.measured is not None
        for table in step.measured.tables:
            alike = (table.name, *table.columns.values())
            rows = [*tables[alike].rows, *table.rows] if alike in tables else table.rows
            tables[alike] = replace(table, rows=rows)
        named = f"{step.step}: " if len(steps) > 1 else ""
        figures += [replace(each, name=f"{named}{each.name}") for each in step.measured.figures]
        notes += [f"{named}{each}" for each in step.measured.notes]
    shown: list[tuple[str, Cells]] = [(table.name, table_cells(table)) for table in tables.values()]
    return Part(title, steps, [*shown, ("figures", figure_cells(figures))] if figures else shown, notes)


def bench_command(record: Record, *more: str) -> str:
    """Return the command that creates and continues the record."""
    return shlex.join(["speedrunner", "bench", "gpu", *record.subject.overrides, *more])


def title_of(record: Record) -> str:
    """Return the record's title: model, hardware, and the time at which the last step ended."""
    subject = record.subject
    dates = sorted(date_of(each.began) for each in record.steps.values() if each.status == "done")
    when = f", {dates[-1]}" if dates else ""
    return f"{subject.model} on {subject.hardware}{when}"


def engine_line(record: Record) -> str:
    """Return the versions of the engine."""
    return ", ".join(f"{name} {version}" for name, version in record.subject.engine.items())


def as_text(record: Record) -> str:
    """Return the record as a section of a Markdown page, with the command that writes it."""
    command = bench_command(record, "--out", "DIR")
    lines = [f"### {title_of(record)}", "", f"{engine_line(record)}. One command writes all of it:", ""]
    lines += ["```", command, "```"]
    for part in parts_of(record):
        lines += ["", f"#### {part.title}"]
        if part.steps:
            lines.append("")
        for step in part.steps:
            assert step.measured is not None
            when = f"{date_of(step.began)}, {step.seconds:.0f} s"
            lines.append(f"- `{step.step}` ({when}): {step.measured.title}")
        for _, cells in part.tables:
            lines += ["", *_markdown(cells)]
        for note in part.notes:
            lines += ["", note]
    return visible("\n".join(lines) + "\n")


def write_page(record: Record) -> None:
    """Write the Markdown page into the record's folder. Raises `StorageError`."""
    write_atomic(record.folder / PAGE, as_text(record).encode())


def record_tables(folder: Path) -> list[writing.Table]:
    """Return the tables of the record in a folder for a report; their names start with the folder's.

    Raises `StorageError`.
    """
    record = read_record_folder(folder)
    caption, name = f"{title_of(record)}; {engine_line(record)}", folder.resolve().name
    return [
        writing.Table(
            f"{name} {part.title} {title}".strip().replace(" ", "_"),
            caption,
            cells[0],
            [*map(tuple, cells[1:])],
        )
        for part in parts_of(record)
        for title, cells in part.tables
    ]


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
