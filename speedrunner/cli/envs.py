"""`speedrunner envs check`: does an environment keep to what `envs.TextEnv` promises?"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from envs.random_play import CALLS
from speedrunner.cli.command import end_report, show_finding
from speedrunner.config.compose import compose
from speedrunner.config.named import chosen_task
from speedrunner.config.schema import TaskConfig
from speedrunner.findings import Finding, failure, ok, report

OPTIONS = "The environment's; task.name=... and task.index=... choose what is played, and need no split."

app = typer.Typer(help="Look at environments, your own among them.", no_args_is_help=True)


@app.command()
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
        typer.Option(min=1, help="Primitive calls of each play; its end is checked if it lasts no longer."),
    ] = CALLS,
    seconds: Annotated[float, typer.Option(min=0.1, help="What one call of the environment may take.")] = 180,
) -> None:
    """Play an environment at random, without a model, and print each promise that it breaks.

    The exit status is 1 when there is one.

    Example: speedrunner envs check scienceworld family=4
    """
    from speedrunner.hosts.env_check import PROCESSES, findings_in_hosts
    from speedrunner.hosts.messages import Check

    settings = [each if each.startswith(("env.", "task.")) else f"env.{each}" for each in options or []]
    config = compose([f"env={name}", *settings])
    task = None if config.task == TaskConfig() else chosen_task(config)

    async def check_in_hosts() -> list[Finding]:
        job = Check(config.env.name, config.env.options, task, calls)
        found = []
        async for text in findings_in_hosts(job, seconds):
            found.append(failure(name, text))
            show_finding(found[-1])
        return found

    if not (found := asyncio.run(check_in_hosts())):
        plays = f"up to {calls} random primitive calls in each play"
        found = [ok(name, f"conforms: {plays}, the same in {PROCESSES} processes")]
        show_finding(found[0])
    end_report(report(name, found), as_json=False)
