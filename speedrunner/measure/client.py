"""The client by itself: real episodes against an engine that answers at once."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

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
from speedrunner.cli.command import Status
from speedrunner.measure.episodes import BenchRun, RecordingActor
from speedrunner.runs.setup import Setup

MB = 1_000_000
MEMORY_EVERY_S = 0.5


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """What the client takes with an engine that answers at once.

    Attributes:
        client_prompt_tokens: of a prompt, on average.
        client_cpu_s: of this process; environments run in others.
        mb_per_episode: resident memory at its peak, of this process beyond what it had before, and of the
            hosts with their sandboxes; pages that processes share are counted for each.
    """

    client_in_flight: int
    client_turns: int
    client_prompt_tokens: float
    client_cpu_s: float
    turns_per_second_per_core: float
    mb_per_episode: float


class AtOnce(httpx2.AsyncBaseTransport):
    """An engine that answers every request at once.

    Args:
        answers: token ids, given in turn.
        lengths: gets the length of each prompt; `None` not to look at requests at all.
    """

    def __init__(self, answers: Sequence[list[int]], lengths: list[int] | None = None) -> None:
        self._bodies = itertools.cycle([_body(ids) for ids in answers])
        self._lengths = lengths

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer."""
        if self._lengths is not None:
            self._lengths.append(len(msgspec.json.decode(request.content)["prompt"]))
        return httpx2.Response(200, content=next(self._bodies), request=request)


def _body(ids: list[int]) -> bytes:
    choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": "stop"}
    usage = {"prompt_tokens": 2000, "completion_tokens": len(ids), "total_tokens": 2000 + len(ids)}
    details = {"prompt_tokens_details": {"cached_tokens": 1984}}
    answer = {"id": "answer", "object": "text_completion", "created": 0, "model": "at-once"}
    return msgspec.json.encode({**answer, "choices": [choice], "usage": {**usage, **details}})


async def measure_client(
    setup: Setup, in_flight: int, answers: Sequence[list[int]], status: Status, run: BenchRun
) -> Client:
    """Play episodes with an engine that answers at once: first for their memory, then for their CPU time.

    Raises:
        HostError, StorageError, RunStopped: something failed.
    """
    status(f"the client alone, {in_flight} episodes in flight")
    card = setup.card
    tokenizer = ChatTokenizer(prepare(card, status), card.revision)
    unit = card.match_unit or 16
    cache = CacheConfig(unit, 1_000_000, True, unit, card.cache == "hybrid")
    lengths: list[int] = []

    @asynccontextmanager
    async def actor(transport: AtOnce) -> AsyncIterator[RecordingActor]:
        meter = Meter(run.directory.append_request, card.prices)
        engine = Engine(Endpoint("http://localhost/v1"), card.name, meter, transport=transport)
        try:
            yield RecordingActor(setup, Model(card, engine, tokenizer, replicas_of([cache], admission=True)))
        finally:
            await engine.close()

    memory = _PeakMemory()
    async with run.hosts(in_flight) as pool:
        async with actor(AtOnce(answers, lengths)) as looked_at, memory.watched():
            await run.play(looked_at, pool, in_flight)
        async with actor(AtOnce(answers)) as timed:
            began = time.process_time()
            played = await run.play(timed, pool, in_flight)
            cpu_s = time.process_time() - began
    turns = sum(len(each.turns) for each in played)
    return Client(
        client_in_flight=in_flight,
        client_turns=turns,
        client_prompt_tokens=statistics.mean(lengths),
        client_cpu_s=cpu_s,
        turns_per_second_per_core=turns / cpu_s,
        mb_per_episode=memory.peak / MB / in_flight,
    )


class _PeakMemory:
    """Resident bytes that this process and its children have taken since it was made, at the most."""

    def __init__(self) -> None:
        self._before = self._now()
        self.peak = 0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look again and again while the context lasts."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, self._now() - self._before)
            await asyncio.sleep(MEMORY_EVERY_S)

    def _now(self) -> int:
        own = psutil.Process()
        total = 0
        for process in [own, *own.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total
