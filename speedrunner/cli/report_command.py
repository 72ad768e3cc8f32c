"""`speedrunner report`: the results of runs as a page, tables and figures in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import PriceList
from speedrunner.cli.output import say, waiting_line
from speedrunner.pages.figures import figures
from speedrunner.pages.html_parts import show_cell
from speedrunner.pages.plots import draw_files
from speedrunner.pages.report_page import collect, describe, page, summarize
from speedrunner.plain.console import align_columns, count_of
from speedrunner.results.analysis_plan import list_experiments
from speedrunner.results.writing import table_files
from speedrunner.store.files import StorageError, write_folder


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Runs, and folders with runs in or below them.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Folder to write. Default: DIR/report."),
    ] = None,
    prices: PriceList = None,
) -> None:
    """Write results of runs: report.html, tables (CSV), figures.

    Runs may be unfinished. Runs that differ only in their seed are grouped. OUT gets report.html for a
    browser, tables/ and figures/ (PDF, SVG), instead of those of an earlier report. Exit status 1: a run
    is damaged and left out, or a folder has no run.

    Example: speedrunner report runs/paper --prices gpt-5.4-mini
    """
    with waiting_line() as status:
        collected = collect(folders, prices, status)
        out = out or _own_folder(folders)
        tables = table_files(collected.tables)
        write_folder(out, tables)  # fails before the figures are drawn
        made = figures(collected.conditions)
        status("drawing figures")
        files = [*map(draw_files, made)]
        images = [content[f"figures/{figure.name}.svg"] for figure, content in zip(made, files, strict=True)]
        text = page(
            ", ".join(list_experiments(collected.runs) or [folder.resolve().name for folder in folders]),
            collected,
            [*zip(made, images, strict=True)],
        )
        drawn = {path: content for contents in files for path, content in contents.items()}
        if (out / "report.html").exists():  # that of other runs may have further tables and figures
            earlier = {
                path for kind in ("tables/*.csv", "figures/*.svg", "figures/*.pdf") for path in out.glob(kind)
            }
            for path in earlier.difference(out / name for name in (*tables, *drawn)):
                path.unlink()
        write_folder(out, {**drawn, "report.html": text.encode()})
    columns, rows = collected.overview
    shown = [[show_cell(cell, column) for cell, column in zip(row, columns, strict=True)] for row in rows]
    say(*align_columns([columns, *shown], left=2), "")
    say(*summarize(collected.conditions))
    say(*describe(collected), *collected.notes, *collected.caveats)
    counts = f"report.html, {count_of(len(collected.tables), 'table')}, {count_of(len(made), 'figure')}"
    say(f"the report was written to {out}: {counts}")
    say(*(f"error: {problem}" for problem in collected.problems), err=True)
    if collected.problems:
        raise typer.Exit(1)


def _own_folder(folders: list[Path]) -> Path:
    """Return `report` in the first folder. Raises `StorageError` if it is a link to another place.

    The folder may be someone else's: a link in it must not choose which of the user's files are written.
    """
    out = next(folder for folder in folders if folder.is_dir()) / "report"
    for place in (out, out / "tables", out / "figures"):
        if place.is_symlink():
            raise StorageError(f"{place} is a link: name a folder for the report with --out")
    return out
