"""`speedrunner export`: runs in the forms of others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from speedrunner.cli.command import tell_left_out
from speedrunner.config.schema import InvalidConfig
from speedrunner.console import visible


def export(
    runs: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders with runs in them or below.")
    ],
    to: Annotated[
        Literal["dataset", "inspect"],
        typer.Option(
            "--to",
            help="dataset: a Hugging Face datasets folder (parquet), one row for each conversation."
            " inspect: a log of Inspect for each evaluation.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="A folder to be made.", show_default=False)],
) -> None:
    """Write runs, finished or not, in a form that others read. Damaged ones are named and left out.

    Example: speedrunner export runs/demo --to dataset --out demo-episodes
    """
    from speedrunner.export.conversations import check
    from speedrunner.export.dataset import write_dataset
    from speedrunner.export.inspect_log import write_logs
    from speedrunner.store.discovery import readable, runs_below

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidConfig(f"{out} exists and is not empty: name a folder that is to be made")
    paths = list(dict.fromkeys(path for each in runs for path in runs_below(each)))
    if not paths:
        raise InvalidConfig(f"there is no run in {', '.join(map(str, runs))}")
    paths, problems = readable(paths, check)
    tell_left_out(problems)
    try:
        if to == "dataset":
            counts = write_dataset(paths, out)
            what = ", ".join(f"{count} conversations in {split}" for split, count in counts.items())
        else:
            what = f"{len(write_logs(paths, out))} logs"
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)  # half of it helps nobody
        raise
    typer.echo(visible(f"{what or 'nothing'} of {len(paths)} runs written to {out}"))
