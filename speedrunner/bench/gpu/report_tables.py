"""Tables of the records that `speedrunner bench gpu` makes, for the report."""

from __future__ import annotations

from pathlib import Path

from speedrunner.bench.gpu.pages import engine_line, not_measured, parts_of, title_of
from speedrunner.bench.gpu.record import read_record_folder
from speedrunner.bench.measurement import figure_cells, table_cells
from speedrunner.results.writing import Table


def record_tables(folder: Path) -> list[Table]:
    """Return the tables of the record in a folder, which begin with its name. Raises `StorageError`."""
    record = read_record_folder(folder)
    caption = f"{title_of(record)}; {engine_line(record)}"
    found: list[tuple[str, list[list[str]]]] = []
    for part in parts_of(record):
        for table in part.tables:
            cells = table_cells(table)
            rows = [list(row) for row in zip(*cells, strict=True)] if table.turned else cells
            found.append((f"{part.title} {table.name}", rows))
        if part.figures:
            found.append((f"{part.title} figures", figure_cells(part.figures)))
    if missing := not_measured(record):
        found.append(("Not measured", [["step", "reason"], *map(list, missing)]))
    name = folder.resolve().name
    return [
        Table(f"{name} {title}".replace(" ", "_"), caption, rows[0], [tuple(row) for row in rows[1:]])
        for title, rows in found
    ]
