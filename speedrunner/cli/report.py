"""`speedrunner report`: what runs came to, as one page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.tables import read_tables, tell_problems
from speedrunner.console import visible


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders with runs in or below them, or runs.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The page; DIR/report.html by default.", show_default=False),
    ] = None,
) -> None:
    """Write figures and tables of all runs below some folders, finished or not, as one HTML file.

    Example: speedrunner report runs/paper
    """
    from speedrunner.report.facts import run_facts
    from speedrunner.report.figures import figures
    from speedrunner.report.page import page
    from speedrunner.store import files

    found = read_tables(folders, None, corrected=False)
    out = out or folders[0] / "report.html"
    text = page(
        title=", ".join(folder.resolve().name for folder in folders),
        figures=figures(found.groups, found.options),
        tables=found.tables,
        runs=[run_facts(run) for group in found.groups for run in group.runs],
        remarks=found.remarks,
        problems=[*found.problems, *found.notes],
    )
    files.write_atomic(out, text.encode())
    typer.echo(f"the report is {visible(str(out))}")
    tell_problems(found)
