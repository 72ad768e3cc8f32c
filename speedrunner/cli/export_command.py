"""`speedrunner export`: runs in the formats of other tools."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from speedrunner.cli.output import say, say_left_out
from speedrunner.config.schema import InvalidConfig
from speedrunner.export.conversations import check
from speedrunner.export.dataset import write_dataset
from speedrunner.export.inspect_log import write_logs
from speedrunner.store.discovery import readable, runs_below


def export(
    runs: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders with runs in or below them.")
    ],
    to: Annotated[
        Literal["dataset", "inspect"],
        typer.Option(
            "--to",
            metavar="dataset|inspect",
            help="dataset: a Hugging Face datasets folder (parquet) with one row for each conversation."
            " inspect: one log of Inspect for each evaluation.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="A new or empty folder to write.", show_default=False)],
) -> None:
    """Export runs as a Hugging Face dataset or as Inspect logs.

    Runs may be unfinished. Damaged runs and broken records are named and left out.

    Example: speedrunner export runs/demo --to dataset --out demo-episodes
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidConfig(f"{out} exists and is not empty: name another folder with --out")
    paths = list(dict.fromkeys(path for each in runs for path in runs_below(each)))
    if not paths:
        raise InvalidConfig(f"no run found in {', '.join(map(str, runs))}")
    checked, problems = readable(paths, check)
    say_left_out(problems)
    say(*(line for _, broken in checked for line in broken), err=True)
    paths = [path for path, _ in checked]
    try:
        if to == "dataset":
            counts = write_dataset(paths, out)
            what = ", ".join(f"{count} conversations in {split}" for split, count in counts.items())
        else:
            what = f"{len(write_logs(paths, out))} logs"
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)  # an incomplete export is useless
        raise
    say(f"{what or 'nothing'} of {len(paths)} runs written to {out}")
