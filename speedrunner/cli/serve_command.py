"""`speedrunner serve`: serve a model in the foreground, for runs in other terminals."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
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
from speedrunner.config.named import actor_model_config
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.runs.shutdown import Interrupted, Shutdown
from speedrunner.store.files import open_new

POLL_S = 0.5


def serve(
    overrides: Annotated[
        list[str] | None,
        key_values(
            "The model and its address: model=NAME, model.replicas=N, model.load_format=dummy,"
            " serving.port=PORT (by default a Unix socket)."
        ),
    ] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the shell command and start nothing.")
    ] = False,
) -> None:
    """Serve a model until Ctrl-C, for runs in other terminals.

    Runs name the server by serving.url=. It listens on a Unix socket that only this user can reach. With
    serving.port, it listens on 127.0.0.1 with a random key, stored in a file that only this user can read.

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
        say(shell_command(fit(model_config, gpus), config.serving.port))
        return
    model_path(model_config)  # raises for a hosted model
    shutdown = Shutdown(say)
    try:
        asyncio.run(shutdown.run(_serve(model_config, config, overrides or [])))
    except Interrupted as interrupted:
        say(f"{interrupted}; the server was stopped")


def shell_command(model_config: ModelConfig, port: int | None) -> str:
    """Return the shell command that starts a model's server; if it has a recipe, the command creates its
    weights first.

    Raises `InvalidModelConfig` for a hosted model.
    """
    path = model_path(model_config)
    server = VllmServer(model_config, path, server_log(model_config), port=port)
    recipe = recipe_command(model_config)
    steps = [shlex.join(recipe)] if recipe else []
    steps.append(shlex.join(["mkdir", "-m", "700", str(server.folder)]))
    key = server.endpoint.api_key
    steps.append(server.shell_line if key is None else f"VLLM_API_KEY={key} {server.shell_line}")
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
            with _key_file(log.with_suffix(".key"), server.endpoint.api_key) as key_file:
                line.close()
                chosen = [each for each in overrides if re.match(r"model[.=]", each)]
                key = [] if key_file is None else [f"serving.api_key_file={key_file}"]
                attach = ["speedrunner", "run", *chosen, f"serving.url={server.endpoint}", *key]
                say(f"{model_config.name} is ready at {server.endpoint}; press Ctrl-C to stop it")
                if key_file is not None:
                    say(f"its API key is in {key_file}")
                say(f"to use it from another terminal: {shlex.join(attach)}")
                while server.alive:  # noqa: ASYNC110 - a process does not report its end
                    await asyncio.sleep(POLL_S)
                raise ServerFailed(server.failure())


@contextmanager
def _key_file(path: Path, key: str | None) -> Iterator[Path | None]:
    """Write the key to a file that only this user can read; remove it at the end. `None` without a key."""
    if key is None:
        yield None
        return
    try:
        with open_new(path) as file:
            file.write(f"{key}\n".encode())
    except OSError as error:
        raise ServerFailed(f"the API key cannot be written to {path}: {error.strerror}") from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
