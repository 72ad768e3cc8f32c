"""`speedrunner doctor`: whether this machine can play."""

from __future__ import annotations

from typing import Annotated

import typer

from speedrunner.cli.command import AsJson, RunsFolder, end_report, show_finding, waiting_line

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [KEY=VALUE]...",
        help="A run's settings, as for `speedrunner run`, or several runs, as for `speedrunner sweep`.",
        show_default=False,
    ),
]


def doctor(what: Runs = None, folder: RunsFolder = None, as_json: AsJson = False) -> None:
    """Check this machine before a run: files, GPUs, engine, sandbox, Java, folders, memory.

    Each line says ok, warning or FAILED, with what to do. No server is started and nothing is fetched. Exit
    status 1: something failed. On a cluster, check a compute node: through srun.

    Example: srun --gres=gpu:1 speedrunner doctor model=qwen3.5-27b
    """
    from speedrunner.cluster.doctor.examine import examine
    from speedrunner.cluster.subject import subject_of

    subject = subject_of(what or [], folder)
    with waiting_line() as status:
        found = examine(subject, status, lambda each: None if as_json else show_finding(each))
    end_report(found, as_json)
