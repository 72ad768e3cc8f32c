"""`speedrunner check env`: check that an environment fulfils the contract of `envs.TextEnv`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from envs.random_play import CALLS
from speedrunner.cli.output import end_report, say_finding
from speedrunner.config.compose import compose
from speedrunner.config.named import choose_task
from speedrunner.config.schema import TaskConfig
from speedrunner.findings import Finding, failure, ok, report
from speedrunner.workers.environment_check import PROCESSES, findings_in_workers
from speedrunner.workers.worker_messages import Check

OPTIONS = "Its options. task.name=... and task.index=... choose the task, and need no split."


def check(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Such as babyai, or package.module:Class.", show_default=False),
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPTION=VALUE]...", help=OPTIONS, show_default=False),
    ] = None,
    calls: Annotated[
        int,
        typer.Option(
            min=1, help="Primitive calls of each play. The end is checked if the episode ends by then."
        ),
    ] = CALLS,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time limit of one call of the environment, in seconds.")
    ] = 180,
) -> None:
    """Play an environment at random and print each broken rule.

    No model is needed. Exit status 1: a rule is broken.

    Example: speedrunner check env scienceworld family=4
    """
    settings = [each if each.startswith(("env.", "task.")) else f"env.{each}" for each in options or []]
    config = compose([f"env={name}", *settings])
    task = None if config.task == TaskConfig() else choose_task(config)

    async def check_in_workers() -> list[Finding]:
        job = Check(config.env.name, config.env.options, task, calls)
        found = []
        async for text in findings_in_workers(job, seconds):
            found.append(failure(name, text))
            say_finding(found[-1])
        return found

    if not (found := asyncio.run(check_in_workers())):
        plays = f"up to {calls} random primitive calls in each play"
        found = [ok(name, f"conforms: {plays}, the same in {PROCESSES} processes")]
        say_finding(found[0])
    end_report(report(name, found))
