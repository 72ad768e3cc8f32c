"""The client by itself: real episodes against an engine that answers at once."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import httpx2
import msgspec
import psutil

from serving.cards import prepare
from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.engine.metrics import CacheConfig
from serving.meter import Meter
from serving.model import Model
from serving.replica import replicas_of
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.measure.measurement import Figure, Status
from speedrunner.measure.played_episodes import BenchRun
from speedrunner.measure.processes import below, memory_mb
from speedrunner.runs.setup import Setup

TURNS_TARGET = 250.0


class _Asked(msgspec.Struct):
    prompt: list[int]


class AtOnce(httpx2.AsyncBaseTransport):
    """An engine that answers every request at once, with token ids that are given in turn."""

    def __init__(self, answers: Sequence[list[int]]) -> None:
        self._answers = itertools.cycle(answers)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer."""
        ids, asked = next(self._answers), msgspec.json.decode(request.content, type=_Asked)
        choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": "stop"}
        details = {"prompt_tokens_details": {"cached_tokens": 0}}
        usage = {"prompt_tokens": len(asked.prompt), "completion_tokens": len(ids), **details}
        body = msgspec.json.encode({"choices": [choice], "usage": usage})
        return httpx2.Response(200, content=body, request=request)


async def measure_client(
    setup: Setup, in_flight: int, answers: Sequence[list[int]], status: Status, run: BenchRun
) -> list[Figure]:
    """Play episodes with an engine that answers at once.

    Returns:
        CPU seconds are those of this process (environments run in others); megabytes are those at the end, of
        this process beyond what it had before, and of the hosts with their sandboxes.

    Raises:
        HostError, StorageError, RunStopped: something failed.
    """
    status(f"the client alone, {in_flight} episodes in flight")
    card = setup.card
    tokenizer = ChatTokenizer(prepare(card, status), card.revision)
    unit = card.match_unit or 16
    replicas = replicas_of([CacheConfig(unit, 1_000_000, True, unit, card.cache == "hybrid")], admission=True)
    transport, meter = AtOnce(answers), Meter(run.record, card.prices)
    engine = Engine(Endpoint("http://localhost/v1"), card.name, meter, transport=transport)
    own = psutil.Process()
    before_mb = memory_mb([own])
    async with run.hosts(in_flight) as pool, AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        await pool.ready()
        began = time.process_time()
        played = await run.play(Model(card, engine, tokenizer, replicas), pool, in_flight)
        cpu_s = time.process_time() - began
        mb = memory_mb([own, *below()]) - before_mb
    prompts = [turn.usage.prompt for each in played for turn in each.trajectory.turns]
    turns_per_s = len(prompts) / cpu_s
    return [
        Figure("client alone, episodes in flight", in_flight),
        Figure("client alone, turns", len(prompts)),
        Figure("client alone, tokens of a prompt", statistics.mean(prompts)),
        Figure("client alone, CPU s", cpu_s),
        Figure("client alone, turns per CPU s", turns_per_s, at_least=TURNS_TARGET),
        Figure("client alone, MB per episode in flight, its host included", mb / in_flight),
    ]
