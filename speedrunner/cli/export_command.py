"""`speedrunner export`: runs in the formats of other tools."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from speedrunner.cli.output import say, say_left_out
from speedrunner.config.schema import InvalidConfig
from speedrunner.export.atif import write_trajectories
from speedrunner.export.conversations import check
from speedrunner.export.dataset import write_dataset
from speedrunner.export.inspect_log import write_logs
from speedrunner.export.request_trace import write_request_traces
from speedrunner.export.session_traces import write_session_traces
from speedrunner.store.discovery import readable, runs_below
from speedrunner.store.files import explain_errors, temporary_name

Format = Literal["dataset", "traces", "inspect", "atif", "mooncake"]


def export(
    runs: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders with runs in or below them.")
    ],
    to: Annotated[
        Format,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="dataset: a Hugging Face datasets folder (parquet) with one row for each conversation."
            " traces: one session trace of the Hugging Face Hub (JSONL) for each conversation."
            " inspect: one log of Inspect for each evaluation."
            " atif: one ATIF 1.8 trajectory for each conversation; `speedrunner import` reads them."
            " mooncake: one Mooncake request trace for each run.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="A new or empty folder to write.", show_default=False)],
    block_size: Annotated[
        int, typer.Option("--block-size", min=1, help="Tokens of each hashed block, for mooncake.")
    ] = 16,
) -> None:
    """Write runs in the formats of other tools.

    Runs may be unfinished. Damaged runs are named and left out. The folder appears once it is complete.

    Examples:
        speedrunner export runs/demo --to dataset --out demo-episodes
        speedrunner export runs/demo --to atif --out demo-atif
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidConfig(f"{out} exists and is not empty: name another folder with --out")
    paths = list(dict.fromkeys(path for each in runs for path in runs_below(each)))
    if not paths:
        raise InvalidConfig(f"no run found in {', '.join(map(str, runs))}")
    paths, problems = readable(paths, check)
    say_left_out(problems)
    temporary = temporary_name(out)
    with explain_errors(out, "written"):
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed export
        try:
            what = _write(to, paths, temporary, block_size)
            if out.exists():
                out.rmdir()
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    say(f"{what or 'nothing'} of {len(paths)} runs written to {out}")


def _write(to: Format, paths: list[Path], folder: Path, block_size: int) -> str:
    """Write the export into a folder and return what it contains."""
    match to:
        case "dataset":
            counts = write_dataset(paths, folder)
            return ", ".join(f"{count} conversations in {split}" for split, count in counts.items())
        case "traces":
            return f"{write_session_traces(paths, folder)} session traces"
        case "inspect":
            return f"{len(write_logs(paths, folder))} logs"
        case "atif":
            return f"{write_trajectories(paths, folder)} trajectories"
        case "mooncake":
            return f"{write_request_traces(paths, folder, block_size)} requests"
