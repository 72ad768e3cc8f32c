"""`speedrunner export`: runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from speedrunner.cli.output import say, say_left_out
from speedrunner.config.schema import InvalidConfig
from speedrunner.export.atif import write_trajectories
from speedrunner.export.conversations import check
from speedrunner.export.dataset import write_dataset
from speedrunner.export.inspect_log import write_logs
from speedrunner.store.discovery import readable, runs_below
from speedrunner.store.folders import check_new, output_folder

Format = Literal["dataset", "inspect", "atif"]


def export(
    runs: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders with runs in or below them.")
    ],
    to: Annotated[
        Format,
        typer.Option(
            "--to",
            metavar="dataset|inspect|atif",
            help="dataset: a Hugging Face datasets folder (parquet) with one row for each conversation."
            " inspect: one log of Inspect for each evaluation."
            " atif: one ATIF 1.8 trajectory for each conversation.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="A new or empty folder to write.", show_default=False)],
    token_ids: Annotated[
        bool,
        typer.Option(
            "--token-ids", help="Write the ids of prompts and answers (serving.token_ids), for atif."
        ),
    ] = False,
) -> None:
    """Write runs in the formats of other tools.

    Runs may be unfinished. Damaged runs and broken records are named and left out. The folder appears once
    it is complete.

    Examples:
        speedrunner export runs/demo --to dataset --out demo-episodes
        speedrunner export runs/demo --to atif --out demo-atif
    """
    if token_ids and to != "atif":
        raise InvalidConfig(f"--token-ids is for --to atif, not for --to {to}")
    check_new(out)
    paths = list(dict.fromkeys(path for each in runs for path in runs_below(each)))
    if not paths:
        raise InvalidConfig(f"no run found in {', '.join(map(str, runs))}")
    checked, problems = readable(paths, check)
    say_left_out(problems)
    say(*(line for _, broken in checked for line in broken), err=True)
    paths = [path for path, _ in checked]
    with output_folder(out, 0o777) as folder:
        if to == "dataset":
            counts = write_dataset(paths, folder)
            what = ", ".join(f"{count} conversations in {split}" for split, count in counts.items())
        elif to == "inspect":
            what = f"{len(write_logs(paths, folder))} logs"
        else:
            what = f"{write_trajectories(paths, folder, token_ids)} trajectories"
    say(f"{what or 'nothing'} of {len(paths)} runs written to {out}")
