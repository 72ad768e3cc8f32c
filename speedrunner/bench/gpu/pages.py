"""A record of `speedrunner bench gpu` as text and as Markdown (docs/gpu.md, "Measured")."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from speedrunner.bench.gpu.record import Record, StepRecord, date_of
from speedrunner.bench.measurement import NOT_MEASURED, Figure, Measurement, Table, figure_cells, table_cells
from speedrunner.bench.measurement import as_text as measurement_text
from speedrunner.console import visible
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
"""Steps of each part of a page, by the beginnings of their names."""

PAGE = "record.md"
"""The Markdown page in a record's folder."""


class Part(NamedTuple):
    """One part of a page. Tables of several steps with the same name and columns are one table."""

    title: str
    steps: list[StepRecord]
    tables: list[Table]
    figures: list[Figure]
    notes: list[str]


def parts_of(record: Record) -> list[Part]:
    """Return what was measured, part by part; parts without a result are left out."""
    done = sorted(
        (each for each in record.steps.values() if each.status == "done" and each.measured is not None),
        key=lambda each: each.began,
    )
    parts = []
    for title, names in PARTS.items():
        steps = [each for each in done if each.step.startswith(names)]
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
        if steps:
            parts.append(Part(title, steps, [*tables.values()], figures, notes))
    return parts


def not_measured(record: Record) -> list[tuple[str, str]]:
    """Return the steps without a result that were tried or skipped, with the reason."""
    return [
        (name, f"{step.status}: {step.reason}")
        for name, step in sorted(record.steps.items())
        if step.status != "done"
    ]


def bench_command(record: Record, *more: str) -> str:
    """Return the command that makes and continues the record."""
    return shlex.join(["speedrunner", "bench", "gpu", *record.subject.overrides, *more])


def title_of(record: Record) -> str:
    """Return what was measured, on what, and when the last step ended."""
    subject = record.subject
    dates = sorted(date_of(each.began) for each in record.steps.values() if each.status == "done")
    when = f", {dates[-1]}" if dates else ""
    return f"{subject.model} on {subject.hardware}{when}"


def engine_line(record: Record) -> str:
    """Return the versions of the engine."""
    return ", ".join(f"{name} {version}" for name, version in record.subject.engine.items())


def as_text(record: Record) -> str:
    """Return the record for a terminal."""
    blocks = [[title_of(record), engine_line(record)]]
    for part in parts_of(record):
        blocks.append([f"== {part.title} =="])
        titles = [f"{each.step}: {each.measured.title}" for each in part.steps if each.measured]
        whole = Measurement("\n".join(titles), part.figures, part.tables, notes=part.notes)
        blocks.append([measurement_text(whole)])
    if missing := not_measured(record):
        blocks.append(["== Not measured =="])
        blocks.append([f"{step}: {reason}" for step, reason in missing])
    return visible("\n\n".join("\n".join(lines) for lines in blocks if lines))


def as_markdown(record: Record) -> str:
    """Return the record as a section of a Markdown page, with the command for each figure."""
    command = bench_command(record, "--out", "DIR")
    lines = [f"### {title_of(record)}", "", f"{engine_line(record)}. One command makes it all:", ""]
    lines += ["```", command, "```"]
    for part in parts_of(record):
        lines += ["", f"#### {part.title}", ""]
        for step in part.steps:
            alone = f", `{step.command}`" if step.command else ""
            assert step.measured is not None
            when = f"{date_of(step.began)}, {step.seconds:.0f} s"
            lines.append(f"- `{step.step}` ({when}): {step.measured.title}{alone}")
        for table in part.tables:
            lines += ["", *_markdown(table_cells(table), turned=table.turned)]
        if part.figures:
            lines += ["", *_markdown(figure_cells(part.figures))]
        for note in part.notes:
            lines += ["", note]
    if missing := not_measured(record):
        lines += ["", "#### Not measured", "", *_markdown([["step", "reason"], *map(list, missing)])]
    return visible("\n".join(lines) + "\n")


def write_page(record: Record) -> None:
    """Write the Markdown page into the record's folder. Raises `StorageError`."""
    write_atomic(record.folder / PAGE, as_markdown(record).encode())


def _markdown(rows: Sequence[Sequence[str]], *, turned: bool = False) -> list[str]:
    """A Markdown table. The first row, or in a turned one the first column, holds the headings."""
    if turned:
        rows = list(zip(*rows, strict=True))
    head, *others = (["\\|".join(cell.split("|")) for cell in row] for row in rows)
    columns = zip(*others, strict=True)
    ruler = ["---:" if all(_is_number(cell) for cell in column) else "---" for column in columns]
    return ["| " + " | ".join(cells) + " |" for cells in (head, ruler, *others)]


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell == NOT_MEASURED
