"""What the engine's benchmarks share: the engine, and a terminal that shows what is waited for."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.text import Text

from serving.cards import CHECKOUT, ModelCard
from serving.deployment import Deployment, deploy
from serving.endpoint import Endpoint
from speedrunner.config.check import InvalidConfig
from speedrunner.config.compose import compose
from speedrunner.drain import Drain, Interrupted
from speedrunner.run import Setup, set_up
from speedrunner.terminal import visible

T = TypeVar("T")

Status = Callable[[str], None]
"""Shows what is waited for."""

LOGS = CHECKOUT / ".cache" / "bench"

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="The model (model=NAME), a server of it that runs (serving.url=...; without that, one is"
        " started), and what is played (env=NAME).",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def bench_setup(overrides: list[str] | None, turns: int | None = None) -> Setup:
    """What the overrides name, for a benchmark of the tokens route.

    Args:
        turns: most requests of an episode; `None` keeps the card's and the environment's own limits.

    Raises:
        InvalidConfig: they cannot be read, or name a model whose cache nobody can look into.
    """
    setup = set_up(compose(overrides or []))
    if setup.card.route != "tokens":
        raise InvalidConfig(
            f"model {setup.card.name!r} is on the chat route: there is nothing to compare with"
        )
    if turns is None:
        return setup
    roles = setup.card.roles
    roles = msgspec.structs.replace(roles, actor=msgspec.structs.replace(roles.actor, max_calls=turns))
    return dataclasses.replace(setup, card=msgspec.structs.replace(setup.card, roles=roles))


@asynccontextmanager
async def bench_deployment(card: ModelCard, setup: Setup, status: Status) -> AsyncIterator[Deployment]:
    """The card's engine: the running one that the configuration names, or one of our own."""
    name = re.sub(r"[^\w.-]+", "_", card.name)
    log = LOGS / f"{name}-{os.getpid()}.log"
    async with deploy(card, setup.service_options(), log=log, say=status, waiting=status) as deployment:
        yield deployment


def with_flags(card: ModelCard, **flags: int) -> ModelCard:
    """The card with other flags of its server; `_` stands for `-`."""
    changed = card.server.flags | {name.replace("_", "-"): value for name, value in flags.items()}
    return msgspec.structs.replace(card, server=msgspec.structs.replace(card.server, flags=changed))


async def metrics(endpoint: Endpoint, *names: str) -> dict[str, int]:
    """Sums of the samples of these names in the engine's metrics, which vLLM's prefix is left out of.

    Raises:
        ServerFailed: the server does not answer.
    """
    text = (await endpoint.get("/metrics")).text
    found = dict.fromkeys(names, 0)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if (name := sample.name.removeprefix("vllm:")) in found:
                found[name] += int(sample.value)
    return found


def carry_out(work: Callable[[Status, Path], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a folder of its own; a signal ends it in good order.

    What it waits for is shown on standard error.
    """
    drain = Drain(lambda line: None)
    shown = Console(stderr=True).status("")

    def status(line: str) -> None:
        shown.update(Text(visible(line)))

    try:
        with shown, tempfile.TemporaryDirectory(prefix="speedrunner-bench-") as folder:
            return asyncio.run(drain.run(work(status, Path(folder))))
    except Interrupted as interrupted:
        typer.echo(str(interrupted), err=True)
        raise typer.Exit(128 + interrupted.number) from None
