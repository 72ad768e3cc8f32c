"""`speedrunner doctor`: whether this machine can play."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from speedrunner.cli.command import AsJson, RunsFolder, waiting_line
from speedrunner.console import visible

if TYPE_CHECKING:
    from speedrunner.cluster.doctor.finding import Finding

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [KEY=VALUE]...",
        help="A run's settings, as for `speedrunner run`, or several runs, as for `speedrunner sweep`.",
        show_default=False,
    ),
]


def doctor(what: Runs = None, folder: RunsFolder = None, as_json: AsJson = False) -> None:
    """Look at this machine before a run: files, GPUs, engine, sandbox, Java, folders, limits, ports.

    Each line says ok, warning or FAILURE, with what to do. No server is started and nothing is fetched. Exit
    status 1: something fails. On a cluster, look at a compute node: through srun.

    Example: srun --gres=gpu:1 speedrunner doctor model=qwen3.5-27b
    """
    from speedrunner.cluster.doctor.examine import examine
    from speedrunner.cluster.subject import subject_of

    def say(finding: Finding) -> None:
        if not as_json:
            for line in finding.lines():
                typer.echo(visible(line))

    subject = subject_of(what or [], folder)
    with waiting_line() as status:
        found = examine(subject, status, say)
    typer.echo(msgspec.json.encode(found).decode() if as_json else visible(found.summary()))
    if not found.healthy:
        raise typer.Exit(1)
