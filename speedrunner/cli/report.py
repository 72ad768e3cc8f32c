"""`speedrunner report`: what runs came to, as one page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import PriceList
from speedrunner.cli.tables import Folders, read_tables, tell_problems
from speedrunner.config.schema import InvalidConfig
from speedrunner.console import visible


def report(
    folders: Folders,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The page; DIR/report.html by default.", show_default=False),
    ] = None,
    printed: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="FOLDER",
            help="Also write each figure for a paper, as PDF, SVG and PNG.",
            show_default=False,
        ),
    ] = None,
    prices: PriceList = None,
) -> None:
    """Write figures and tables of all runs below some folders, finished or not, as one HTML file.

    A folder of `speedrunner bench gpu` among them adds its tables.
    The exit status is 1 when a run is damaged, which is left out, or a folder holds none.

    Example: speedrunner report runs/paper --figures figures
    """
    from speedrunner.bench.gpu.record import is_record
    from speedrunner.experiments.damage import readable
    from speedrunner.report.facts import facts
    from speedrunner.report.figures import figures, not_begun
    from speedrunner.report.page import page
    from speedrunner.report.records import record_tables
    from speedrunner.results.paper import played_models, sweep_command
    from speedrunner.store import files

    measured = [folder for folder in folders if is_record(folder)]
    folders = [folder for folder in folders if folder not in measured]
    if not folders:
        raise InvalidConfig(
            f"{measured[0]} is a record of `bench gpu`, with its tables in record.md: name runs as well"
        )
    found = read_tables(folders, prices, corrected=False)
    try:
        records, damaged = readable(measured, record_tables)
    except files.StorageError as error:
        records, damaged = [], [str(error)]
    found.problems.extend(damaged)
    made = figures(found.groups, found.options)
    # Only a link that the user names is followed: one in the folder of the runs may be someone else's.
    place = out and out.resolve()
    out = out or next(folder for folder in folders if folder.is_dir()) / "report.html"
    text = page(
        title=", ".join(folder.resolve().name for folder in folders),
        figures=made,
        tables=found.tables,
        facts=facts([run for group in found.groups for run in group.runs]),
        remarks=[*found.remarks, *found.notes],
        problems=found.problems,
        not_begun=not_begun(found.groups, found.options),
        cache=[
            sweep_command("cache", model, found.options) for model in played_models(found.groups).values()
        ],
        records=[table for tables in records for table in tables],
    )
    files.write_atomic(place or out, text.encode())
    for note in found.notes:
        typer.echo(visible(note))
    if printed is not None:
        from speedrunner.report.printing import write_figures

        count = len(write_figures(made, printed))
        typer.echo(f"{count} files of {len(made)} figures are in {visible(str(printed))}")
    typer.echo(f"the report is {visible(str(out))}")
    tell_problems(found)
