"""`speedrunner envs check`: does an environment keep to what `envs.TextEnv` promises?"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from envs.random_play import CALLS
from speedrunner.config.compose import compose
from speedrunner.config.named import chosen_task
from speedrunner.config.schema import TaskConfig
from speedrunner.console import visible

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

    async def tell() -> int:
        wrong = 0
        async for finding in findings_in_hosts(
            Check(config.env.name, config.env.options, task, calls), seconds
        ):
            typer.echo(visible(finding))
            wrong += 1
        return wrong

    if asyncio.run(tell()):
        raise typer.Exit(1)
    plays = f"up to {calls} random primitive calls in each play"
    typer.echo(f"{name} conforms: {plays}, the same in {PROCESSES} processes")
