"""`speedrunner export`: runs in the formats of other tools."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from speedrunner.cli.output import say, say_left_out
from speedrunner.config.schema import InvalidConfig
from speedrunner.export.atif import write_trajectories
from speedrunner.export.conversations import check, run_names
from speedrunner.export.dataset import write_dataset
from speedrunner.export.inspect_log import write_logs
from speedrunner.export.request_trace import write_request_trace
from speedrunner.export.session_traces import write_session_traces
from speedrunner.store.discovery import readable, runs_below
from speedrunner.store.files import FOLDER_MODE
from speedrunner.store.folders import check_new, output_folder

Format = Literal["dataset", "traces", "inspect", "atif", "mooncake"]

BLOCK_TOKENS = 16


def export(
    runs: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders with runs in or below them.")
    ],
    to: Annotated[
        Format,
        typer.Option(
            "--to",
            metavar="dataset|traces|inspect|atif|mooncake",
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
        int | None,
        typer.Option(
            "--block-size",
            min=1,
            help=f"Tokens of each hashed block, for mooncake. Default: {BLOCK_TOKENS}.",
            show_default=False,
        ),
    ] = None,
    token_ids: Annotated[
        bool,
        typer.Option(
            "--token-ids", help="Write the ids of prompts and answers (serving.token_ids), for atif."
        ),
    ] = False,
) -> None:
    """Write runs in the formats of other tools.

    Runs may be unfinished. Damaged runs are named and left out; `dataset` and `inspect` leave out only a
    broken record. The folder appears once it is complete.

    Examples:
        speedrunner export runs/demo --to dataset --out demo-episodes
        speedrunner export runs/demo --to atif --out demo-atif
    """
    if token_ids and to != "atif":
        raise InvalidConfig(f"--token-ids is for --to atif, not for --to {to}")
    if block_size is not None and to != "mooncake":
        raise InvalidConfig(f"--block-size is for --to mooncake, not for --to {to}")
    check_new(out)
    paths = list(dict.fromkeys(path for each in runs for path in runs_below(each)))
    if not paths:
        raise InvalidConfig(f"no run found in {', '.join(map(str, runs))}")
    checked, problems = readable(paths, check)
    say_left_out(problems)
    if to in ("dataset", "inspect"):
        say(*(line for _, broken in checked for line in broken), err=True)
    paths = [path for path, _ in checked]
    mode = FOLDER_MODE if to == "atif" else 0o777  # records are for their owner only
    with output_folder(out, mode) as folder:
        what, count = _write(to, paths, folder, block_size or BLOCK_TOKENS, token_ids)
    say(f"{what or 'nothing'} of {count} runs written to {out}")


def _write(to: Format, paths: list[Path], folder: Path, block_size: int, token_ids: bool) -> tuple[str, int]:
    """Write the export into a folder. Return what it contains, and the number of runs."""
    write: Callable[[Path, Path], int]
    match to:
        case "dataset":
            counts = write_dataset(paths, folder)
            what = ", ".join(f"{count} conversations in {split}" for split, count in counts.items())
            return what, len(paths)
        case "inspect":
            return f"{len(write_logs(paths, folder))} logs", len(paths)
        case "traces":
            name, write = "session traces", write_session_traces
        case "atif":
            name, write = "trajectories", partial(write_trajectories, with_ids=token_ids)
        case "mooncake":
            name, write = "requests", partial(write_request_trace, block_size=block_size)
    folders = dict(zip(paths, run_names(paths), strict=True))

    def write_run(path: Path) -> int:
        try:
            return write(path, folder / folders[path])
        except BaseException:
            shutil.rmtree(folder / folders[path], ignore_errors=True)
            raise

    written, problems = readable(paths, write_run)
    say_left_out(problems)
    return f"{sum(written)} {name}", len(written)
