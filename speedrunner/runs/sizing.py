"""How much context a run's models get: what their GPUs or server allow, and what the run has recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from serving.deployment import running_endpoint
from serving.engine.gpus import GpuReport, read_gpus
from serving.gpu_check import divide_gpus
from serving.model_card import ModelCard
from serving.sizing import sized
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Process
from speedrunner.store.stored_run import RunDirectoryError


async def sized_setup(setup: Setup, say: Callable[[str], None]) -> Setup:
    """Return the setup with its models fitted to the GPUs here, or to the server that it names.

    Args:
        say: gets a line about each model that was fitted.

    Raises:
        InvalidCard, ServerFailed: see `serving.sizing.sized`.
    """
    services = setup.services
    endpoints = [running_endpoint(*service) for service in services]
    # A server that runs takes no GPU here.
    started = [card for (card, _), place in zip(services, endpoints, strict=True) if place is None]
    report = await asyncio.to_thread(read_gpus) if any(card.gpus for card in started) else GpuReport()
    divided = iter(divide_gpus(started, report))
    cards = [
        await sized(card, endpoint, next(divided) if endpoint is None else [], say)
        for (card, _), endpoint in zip(services, endpoints, strict=True)
    ]
    return replace(setup, card=cards[0], inducer_card=cards[-1])


def with_recorded_contexts(path: Path, processes: Sequence[Process], setup: Setup) -> Setup:
    """Return the setup with the contexts that a run has recorded, also where more would fit here.

    A run is one experiment: its episodes must not get longer after a move to a larger GPU.

    Args:
        path: the run's directory.
        processes: those that worked on the run so far.

    Raises:
        RunDirectoryError: a model has less context here.
    """
    if not processes:
        return setup
    before = processes[-1]
    actor = _with_recorded_context(path, before.actor, setup.card)
    if setup.inducer_card is setup.card:
        return replace(setup, card=actor, inducer_card=actor)
    others = _with_recorded_context(path, before.inducer, setup.inducer_card)
    return replace(setup, card=actor, inducer_card=others)


def _with_recorded_context(path: Path, before: ModelCard, card: ModelCard) -> ModelCard:
    if card.hosted or before.name != card.name or before.context == card.context:
        return card
    if before.context > card.context:
        raise RunDirectoryError(
            f"{path} was played with a context of {before.context:,} tokens, and {card.name} has"
            f" {card.context:,} here: resume it on larger GPUs, or with a server that was started with"
            f" --max-model-len {before.context}, or name another directory with run.dir"
        )
    return msgspec.structs.replace(card, context=before.context)
