"""What the engine's benchmarks share."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from prometheus_client.parser import text_string_to_metric_families

from serving.cards import ModelCard
from serving.deployment import Deployment, deploy
from serving.engine.endpoint import Endpoint
from speedrunner.cli.command import Status, carry_out_showing, server_log
from speedrunner.config.check import InvalidConfig
from speedrunner.config.compose import compose
from speedrunner.runs.setup import Setup, service_options, set_up

T = TypeVar("T")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="The model (model=NAME), a server of it that runs (serving.url=...; without that, one is"
        " started), and what is played (env=NAME).",
        show_default=False,
    ),
]


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
    options, log = service_options(setup.config), server_log("bench", card)
    async with deploy(card, options, log=log, say=status, waiting=status) as deployment:
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


def carry_out_in_folder(work: Callable[[Status, Path], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a folder of its own, as `carry_out_showing` does."""
    with tempfile.TemporaryDirectory(prefix="speedrunner-bench-") as folder:
        return carry_out_showing(lambda status: work(status, Path(folder)))
