"""What commands share: how they print, wait, and end at a signal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from speedrunner.bench import measurement
from speedrunner.bench.measurement import Measurement
from speedrunner.console import Status, json_text, visible
from speedrunner.findings import Finding, Report
from speedrunner.runs.drain import Drain, Interrupted
from speedrunner.slurm import time_left_s

T = TypeVar("T")

SILENT_S = 15.0
"""How long a command may say nothing on a standard error that is no terminal."""


def key_values(help_text: str) -> Any:
    """The argument of a command that takes overrides of the configuration."""
    return typer.Argument(metavar="[KEY=VALUE]...", help=help_text, show_default=False)


EngineOverrides = Annotated[
    list[str] | None,
    key_values(
        "The model (model=NAME), a server of it that runs (serving.url=...; without that, one is started),"
        " and what is played where anything is (env=NAME)."
    ),
]

RunsFolder = Annotated[
    Path | None,
    typer.Option("--dir", help="Where the runs' folders are; runs/SCALE by default.", show_default=False),
]

PriceList = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="NAME",
        help="A file of configs/prices, or card (the model cards' own lists), for all of them; by default"
        " each run's own list.",
        show_default=False,
    ),
]

Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="NAME",
        help="Use module:Class, or a model configuration's path, that the run names; may be repeated.",
        show_default=False,
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def plain_console(*, stderr: bool = False) -> Console:
    """A console that prints texts as they are: paths and games may hold what would be markup."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def carry_out(
    work: Callable[[Drain], Coroutine[Any, Any, T]],
    say: Callable[[str], None],
    kept: str = "",
    patience_s: float = 0.0,
) -> T:
    """Run `work`, drained on SIGINT, SIGTERM and SIGUSR1, with exit status 128 + the signal's number then.

    In a Slurm job it is drained in time before the job ends, as by a SIGUSR1.

    Args:
        say: tells of the signal.
        kept: said after the signal's name.
        patience_s: how long what is in flight may go on.
    """
    drain = Drain(say, patience_s, time_left_s())
    try:
        return asyncio.run(drain.run(work(drain)))
    except Interrupted as interrupted:
        say(f"{interrupted}{kept}")
        raise typer.Exit(128 + interrupted.number) from None


def show_measured(
    measure: Callable[[Status], Coroutine[Any, Any, Measurement]], as_json: bool
) -> Measurement:
    """Measure, tell of it on standard error, print what was found. Exit status 1: a target is missed."""
    with waiting_line() as status:
        found = carry_out(lambda drain: measure(status), lambda line: typer.echo(line, err=True))
    typer.echo(measurement.as_json(found) if as_json else visible(measurement.as_text(found)))
    if found.met is False:
        raise typer.Exit(1)
    return found


def refuse_moved(app: typer.Typer, name: str, old: str, new: str) -> None:
    """Answer a command of an old name with its new one and exit status 2."""
    anything = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": True}

    @app.command(name, hidden=True, context_settings=anything)
    def moved() -> None:
        typer.echo(f"error: `{old}` is now `{new}`", err=True)
        raise typer.Exit(2)


def show_finding(finding: Finding) -> None:
    """Print what a check has found."""
    for line in finding.lines():
        typer.echo(visible(line))


def end_report(found: Report, as_json: bool) -> None:
    """Print the JSON form of a report, or its notes and summary. Exit status 1: something failed."""
    if as_json:
        typer.echo(json_text(found))
    else:
        for line in (*(f"note: {each}" for each in found.notes), found.summary()):
            typer.echo(visible(line))
    if not found.passed:
        raise typer.Exit(1)


def tell_left_out(problems: Iterable[str]) -> None:
    """Say on standard error which runs are damaged, where the others are gone on with."""
    for problem in problems:
        typer.echo(visible(f"left out: {problem}"), err=True)


@contextmanager
def waiting_line() -> Iterator[Status]:
    """Shows on standard error what is waited for: one line on a terminal, else a line now and then."""
    console = plain_console(stderr=True)
    line = console.status("")
    said = time.monotonic()

    def say(text: str) -> None:
        nonlocal said
        if console.is_terminal:
            line.update(Text(visible(text)))
        elif time.monotonic() - said > SILENT_S:
            typer.echo(visible(text), err=True)
            said = time.monotonic()

    with line:
        yield say
