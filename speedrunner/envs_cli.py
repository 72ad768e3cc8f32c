"""`speedrunner envs check`: does an environment keep to what `envs.TextEnv` promises?"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from envs.conformance import CALLS
from speedrunner.terminal import visible

app = typer.Typer(help="Look at environments, your own among them.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `check` a command of its own; a single one would take the group's name."""


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Such as babyai, or package.module:Class.", show_default=False),
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPTION=VALUE]...", help="The environment's.", show_default=False),
    ] = None,
    calls: Annotated[
        int,
        typer.Option(min=1, help="Primitive calls of each play; its end is checked if it lasts no longer."),
    ] = CALLS,
) -> None:
    """Play an environment at random, without a model, and print each promise that it breaks.

    The exit status is 1 when there is one.

    Example: speedrunner envs check scienceworld family=4
    """
    import envs
    from envs.conformance import findings
    from speedrunner.config.compose import compose

    settings = [option if option.startswith("env.") else f"env.{option}" for option in options or []]
    env = compose([f"env={name}", *settings]).env
    split = envs.splits(env.name, **env.options)
    made = envs.make(env.name, **env.options)
    say = sys.stdout  # environments may print
    wrong = 0
    try:
        with redirect_stdout(sys.stderr):
            for finding in findings(made, split, calls=calls):
                typer.echo(visible(finding), file=say)
                wrong += 1
    finally:
        made.close()
    if wrong:
        raise typer.Exit(1)
    typer.echo(f"{name} conforms: two tasks played with up to {calls} random primitive calls each")
