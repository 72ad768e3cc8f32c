"""`speedrunner prepare`, `doctor` and `serve`: bring what runs need to a machine, check and serve it."""

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
from speedrunner.cli.command import AsJson, RunOrList, RunsFolder, key_values
from speedrunner.cli.output import end_report, say, say_error, waiting_line
from speedrunner.cluster.doctor import examine
from speedrunner.cluster.needs import find_needs, prepare_needs
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.runs.setup import choose_model_config
from speedrunner.runs.shutdown import Interrupted, Shutdown

POLL_S = 0.5


def prepare(what: RunOrList = None) -> None:
    """Download and build what runs need on nodes without a network.

    It prepares weights and tokenizers of all models, Java, and compiled files of environments. Call it on a
    machine with a network, such as a login node. HF_HOME is the folder of weights from the hub.
    Nothing is downloaded twice. Exit status 1: something could not be prepared.

    Example: speedrunner prepare experiment=main model=qwen3.5-27b
    """
    needs, has_failed = find_needs(what or []), False
    with waiting_line() as status:
        for finding in prepare_needs(needs, status):
            say(*finding.lines())
            has_failed |= finding.level == "failed"
    if has_failed:
        raise typer.Exit(1)
    say(f"now, on a node: {needs.doctor}")


def doctor(what: RunOrList = None, folder: RunsFolder = None, as_json: AsJson = False) -> None:
    """Check this machine before a run and say how to fix problems.

    Checked are files, GPUs, sandbox, Java, folders and memory. Each line says ok, warning or
    FAILED. No server is started and nothing is downloaded. Exit status 1: a check failed. On a cluster,
    check a compute node through srun.

    Example: srun --gres=gpu:1 speedrunner doctor model=qwen3.5-27b
    """
    needs = find_needs(what or [], folder)
    with waiting_line() as status:
        report = examine(needs, status, lambda finding: None if as_json else say(*finding.lines()))
    end_report(report, as_json=as_json)


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
    model_config = choose_model_config(config)
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
    server = VllmServer(model_config, server_log(model_config))
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
            chosen = [override for override in overrides if re.match(r"model[.=]", override)]
            attach = ["speedrunner", "run", *chosen, f"serving.url={server.endpoint}"]
            say(f"{model_config.name} is ready at {server.endpoint}; press Ctrl-C to stop it")
            say(f"to use it from another terminal: {shlex.join(attach)}")
            while server.alive:  # noqa: ASYNC110 - a process does not report its end
                await asyncio.sleep(POLL_S)
            raise ServerFailed(server.failure())
