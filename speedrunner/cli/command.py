"""Shared by commands: their options and arguments, and how they run asynchronous work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from speedrunner.bench import measurement
from speedrunner.bench.measurement import Measurement
from speedrunner.cli.output import say, say_error, waiting_line
from speedrunner.plain.console import Status
from speedrunner.plain.slurm import time_left_s
from speedrunner.runs.shutdown import Interrupted, Shutdown

T = TypeVar("T")


def key_values(help_text: str) -> Any:
    """Return the argument of a command that takes settings."""
    return typer.Argument(metavar="[KEY=VALUE]...", help=help_text)


def run_list(help_text: str) -> Any:
    """Return the argument of a command that takes the runs of a sweep."""
    return typer.Argument(metavar="[FILE] [KEY=VALUE]...", help=help_text)


Overrides = Annotated[
    list[str] | None,
    key_values(
        "Settings that differ from the defaults (`speedrunner list keys`): groups, such as env=babyai"
        " method=react model=tiny-random, and single keys, such as run.rollouts=20."
    ),
]

RunOrList = Annotated[
    list[str] | None,
    run_list("Settings of one run, as for `speedrunner run`, or of several, as for `speedrunner sweep`."),
]

EngineOverrides = Annotated[
    list[str] | None,
    key_values(
        "The model (model=NAME), a running server of it (serving.url=...; by default one is started), and the"
        " environment where one is played (env=NAME)."
    ),
]

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")]

RunsFolder = Annotated[
    Path | None,
    typer.Option("--dir", help="Folder of the runs' directories. Default: runs/SCALE."),
]

PriceList = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="NAME",
        help="Price list for all runs: a file of configs/prices, the path of a list's .yaml file, or model"
        " (each model configuration's own list). Default: each run's own list.",
    ),
]

Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="NAME",
        help="Use a module:Class or a model configuration's path that the run names. Repeatable.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and the largest number of requests.")]


def carry_out(
    work: Callable[[Shutdown], Coroutine[Any, Any, T]],
    show: Callable[[str], None] = say_error,
    kept: str = "",
    patience_s: float = 0.0,
) -> T:
    """Run `work` until it ends or SIGINT, SIGTERM or SIGUSR1 drains it.

    After a signal, the exit status is 128 + its number. A Slurm job is drained before its time is over, as
    by SIGUSR1.

    Args:
        show: prints a line about the signal.
        kept: text that follows the signal's name.
        patience_s: how long running episodes may continue after the signal, in seconds.
    """
    shutdown = Shutdown(show, patience_s, time_left_s())
    try:
        return asyncio.run(shutdown.run(work(shutdown)))
    except Interrupted as interrupted:
        show(f"{interrupted}{kept}")
        raise typer.Exit(128 + interrupted.number) from None


def show_measured(
    measure: Callable[[Status], Coroutine[Any, Any, Measurement]], as_json: bool
) -> Measurement:
    """Measure, with progress on standard error, and print the result. Exit status 1: a target is missed."""
    with waiting_line() as status:
        measured = carry_out(lambda shutdown: measure(status))
    say(measurement.as_json(measured) if as_json else measurement.as_text(measured))
    if measured.met is False:
        raise typer.Exit(1)
    return measured
