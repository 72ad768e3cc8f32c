"""`speedrunner serve`: serve a model in the foreground, for runs in other terminals."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated

import typer

from serving.deployment import deploy, server_log
from serving.engine.gpus import read_gpus
from serving.engine.server import VllmServer
from serving.errors import ServerFailed
from serving.model_config import ModelConfig
from serving.sizing import fit
from serving.weights import model_path, recipe_command
from speedrunner.cli.command import key_values
from speedrunner.cli.output import say, say_error, waiting_line
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.runs.setup import actor_model_config
from speedrunner.runs.shutdown import Interrupted, Shutdown

POLL_S = 0.5


def serve(
    overrides: Annotated[
        list[str] | None,
        key_values("The model: model=NAME, model.replicas=N, model.load_format=dummy."),
    ] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the shell command and start nothing.")
    ] = False,
) -> None:
    """Serve a model until Ctrl-C, for runs in other terminals.

    Runs name the server by serving.url=. It listens on a Unix socket that only this user can reach.

    Example: speedrunner serve model=qwen3.5-27b
    """
    config = compose(overrides or [])
    if config.serving.url is not None:
        raise InvalidConfig(
            f"serving.url={config.serving.url} is a running server, but `serve` starts one: remove"
            " serving.url"
        )
    model_config = actor_model_config(config)
    if print_:
        gpus = read_gpus().usable
        if model_config.gpus and not gpus:
            say_error("note: no GPU is visible here, so the context and sequences are not fitted to one")
        say(shell_command(fit(model_config, gpus)))
        return
    model_path(model_config)  # raises for a hosted model
    shutdown = Shutdown(say)
    try:
        asyncio.run(shutdown.run(_serve(model_config, config, overrides or [])))
    except Interrupted as interrupted:
        say(f"{interrupted}; the server was stopped")


def shell_command(model_config: ModelConfig) -> str:
    """Return the shell command that starts a model's server; if it has a recipe, the command creates its
    weights first.

    Raises `InvalidModelConfig` for a hosted model.
    """
    path = model_path(model_config)
    server = VllmServer(model_config, path, server_log(model_config))
    recipe = recipe_command(model_config)
    steps = [shlex.join(recipe)] if recipe else []
    steps.append(shlex.join(["mkdir", "-m", "700", str(server.folder)]))
    steps.append(server.shell_line)
    return " && ".join(steps)


async def _serve(model_config: ModelConfig, config: Config, overrides: Sequence[str]) -> None:
    """Start the server, print its address, and wait until it ends. Raises `ServerFailed`."""
    options, log = config.serving, server_log(model_config)
    with ExitStack() as line:
        status = line.enter_context(waiting_line())
        async with deploy(model_config, options, log=log, say=say, waiting=status) as deployment:
            async with deployment.client(lambda row: None):
                pass  # it answered a real request
            server = deployment.server
            assert server is not None
            line.close()
            chosen = [each for each in overrides if re.match(r"model[.=]", each)]
            attach = ["speedrunner", "run", *chosen, f"serving.url={server.endpoint}"]
            say(f"{model_config.name} is ready at {server.endpoint}; press Ctrl-C to stop it")
            say(f"to use it from another terminal: {shlex.join(attach)}")
            while server.alive:  # noqa: ASYNC110 - a process does not report its end
                await asyncio.sleep(POLL_S)
            raise ServerFailed(server.failure())
