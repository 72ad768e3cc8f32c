"""`speedrunner serve`: a model card's server in the foreground, for runs of other terminals."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from serving.errors import ServerFailed
from serving.model_card import ModelCard
from serving.weights import model_path, recipe_command
from speedrunner.cli.command import key_values, waiting_line
from speedrunner.config.compose import compose
from speedrunner.config.named import actor_card
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.console import visible
from speedrunner.runs.drain import Drain, Interrupted

POLL_S = 0.5


def serve(
    overrides: Annotated[
        list[str] | None,
        key_values(
            "What to serve and where: model=NAME, model.replicas=N, model.load_format=dummy,"
            " serving.port=PORT (without it, a Unix socket)."
        ),
    ] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the shell command that does it, and start nothing.")
    ] = False,
) -> None:
    """Serve a model until Ctrl-C, for runs that name it by serving.url=.

    It listens on a Unix socket that only this user can reach, or with serving.port on 127.0.0.1 with a random
    key, which a file that only this user can read holds.

    Example: speedrunner serve model=qwen3.5-27b
    """
    config = compose(overrides or [])
    if config.serving.url is not None:
        raise InvalidConfig(f"serving.url={config.serving.url} is a server that runs; `serve` starts one")
    card = actor_card(config)
    if print_:
        from serving.engine.gpus import read_gpus
        from serving.sizing import fit

        gpus = read_gpus().usable
        if card.gpus and not gpus:
            note = "note: no GPU is visible here, so the context and sequences are not fitted to one"
            typer.echo(note, err=True)
        typer.echo(shell_command(fit(card, gpus), config.serving.port))
        return
    model_path(card)  # which a hosted model has not
    drain = Drain(lambda line: typer.echo(line))
    try:
        asyncio.run(drain.run(_serve(card, config, overrides or [])))
    except Interrupted as interrupted:
        typer.echo(f"{interrupted}; the server has ended")


def shell_command(card: ModelCard, port: int | None) -> str:
    """What starts the card's server from a shell, the folder of its model made first where it has a recipe.

    Raises `InvalidCard` for a hosted model.
    """
    from serving.deployment import server_log
    from serving.engine.server import VllmServer

    path = model_path(card)
    server = VllmServer(card, path, server_log(card), port=port)
    recipe = recipe_command(card)
    steps = [shlex.join(recipe)] if recipe else []
    steps.append(shlex.join(["mkdir", "-m", "700", str(server.folder)]))
    key = server.endpoint.api_key
    steps.append(server.shell_line if key is None else f"VLLM_API_KEY={key} {server.shell_line}")
    return " && ".join(steps)


async def _serve(card: ModelCard, config: Config, overrides: Sequence[str]) -> None:
    """Start the server, say where it is, and stay until it ends. Raises `ServerFailed`."""
    from serving.deployment import deploy, server_log

    options, log = config.serving, server_log(card)
    with ExitStack() as line:
        status = line.enter_context(waiting_line())
        async with deploy(
            card, options, log=log, say=lambda text: typer.echo(visible(text)), waiting=status
        ) as deployment:
            async with deployment.client(lambda row: None):
                pass  # it answered a real request
            server = deployment.server
            assert server is not None
            with _key_file(log.with_suffix(".key"), server.endpoint.api_key) as key_file:
                line.close()
                chosen = [each for each in overrides if re.match(r"model[.=]", each)]
                key = [] if key_file is None else [f"serving.api_key_file={key_file}"]
                attach = ["speedrunner", "run", *chosen, f"serving.url={server.endpoint}", *key]
                typer.echo(f"{card.name} is ready at {server.endpoint}; Ctrl-C ends it")
                if key_file is not None:
                    typer.echo(f"its API key is in {key_file}")
                typer.echo(f"to use it from another terminal: {shlex.join(attach)}")
                while server.alive:  # noqa: ASYNC110 - a process tells nobody when it ends
                    await asyncio.sleep(POLL_S)
                raise ServerFailed(server.failure())


@contextmanager
def _key_file(path: Path, key: str | None) -> Iterator[Path | None]:
    """A file with the key that only this user can read, for as long as it is of use; `None` without a key."""
    if key is None:
        yield None
        return
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(key + "\n")
    except OSError as error:
        raise ServerFailed(f"the API key cannot be written to {path}: {error.strerror}") from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
