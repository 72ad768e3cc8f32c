"""Requests of every fate: answered, disconnected, timed out, too long, cut, refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from serving.conversation import TokenConversation
from serving.engine.client import Engine, EngineResponse
from serving.errors import ContextOverflow, EngineDead, RequestFailed, RequestRefused
from serving.model import Model
from serving.probes.tool_battery import SYSTEM, battery
from serving.probes.tools import as_role
from speedrunner.cli.command import Status

CALM = {"answered": 10, "long": 4, "too long": 1, "cut": 1, "refused": 1}
"""What is to happen to the first half of the requests, and how often: the engine finishes or refuses each."""

ROUGH = CALM | {"disconnected": 4, "timed out": 4}
"""And to the second half."""

TURNS = 5
"""Most requests of a conversation."""

THINKING_TOKENS = 24
LONGEST_ANSWER = 300
TIMEOUTS_S = (0.02, 0.2, 2.0)  # the first is shorter than any answer takes
LONGEST_WAIT_S = 3.0
"""Before a disconnect."""


class Traffic:
    """Requests of every fate, drawn with a seed."""

    def __init__(
        self, model: Model, impatient: list[Engine], requests: int, seed: int, status: Status
    ) -> None:
        self._model = model
        self._impatient = impatient
        self._left = 0
        self._sent = 0
        self._requests = requests
        self._draw = random.Random(seed)
        self._status = status
        self._prefixes = [self._ids(256) for _ in range(4)]

    async def send(self, fates: Mapping[str, int], requests: int, in_flight: int) -> None:
        """Send so many requests, of fates drawn by their weights."""
        self._left = requests
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(self._work(fates))

    async def _work(self, weights: Mapping[str, int]) -> None:
        fates: dict[str, Callable[[], Awaitable[object]]] = {
            "answered": self._converse,
            "long": self._long,
            "disconnected": self._disconnect,
            "timed out": self._time_out,
            "too long": self._too_long,
            "cut": self._cut,
            "refused": self._refused,
        }
        while self._left > 0:
            (fate,) = self._draw.choices(list(weights), list(weights.values()))
            # As was asked for, or turned away too often, or by an engine too busy to call itself healthy; one
            # that is really gone shows when its counters are read.
            with suppress(ContextOverflow, RequestFailed, RequestRefused, EngineDead):
                await fates[fate]()

    def _count(self) -> None:
        self._left -= 1
        self._sent += 1
        self._status(f"{self._sent} of {self._requests} requests")

    async def _converse(self) -> None:
        """Some turns of a conversation, with thinking or without."""
        role = self._draw.choice(["actor", "inducer", "critic"])
        thinks = role != "actor" and self._model.card.thinking != "none"
        settings = msgspec.structs.replace(
            self._model.card.role(role),
            string_tokens=24,
            thinking_tokens=THINKING_TOKENS if thinks else 0,
        )
        probe = self._draw.choice(battery()[:4])
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": probe.message}]
        talk = as_role(self._model, settings).converse(role, messages, list(probe.tools), {})
        assert isinstance(talk, TokenConversation)
        try:
            for _ in range(self._draw.randint(1, TURNS)):
                if self._left <= 0:
                    break
                self._count()
                await talk.ask()
                talk.tell("Go on. " * self._draw.randint(1, 40))
        finally:
            talk.close()

    async def _long(self) -> None:
        """An answer that takes many blocks, so that there may be none left for another."""
        self._count()
        await self._complete(self._model.engine, "long", self._prompt(), LONGEST_ANSWER)

    async def _disconnect(self) -> None:
        self._count()
        request = asyncio.create_task(
            self._complete(self._model.engine, "disconnected", self._prompt(), LONGEST_ANSWER)
        )
        await asyncio.wait([request], timeout=self._draw.uniform(0, LONGEST_WAIT_S))
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)

    async def _time_out(self) -> None:
        self._count()
        answer = self._draw.choice([4, 16, LONGEST_ANSWER])
        engine = self._draw.choice(self._impatient)
        await self._complete(engine, "timed out", self._prompt(), answer)

    async def _too_long(self) -> None:
        self._count()
        context = self._model.card.context
        ids = self._ids(self._draw.choice([context, context + 1, 2 * context]))
        await self._complete(self._model.engine, "too long", ids, 1)

    async def _cut(self) -> None:
        """The context ends in the middle of the answer."""
        self._count()
        room = self._draw.randint(1, 10)
        ids = self._draw.choice(self._prefixes)
        ids = (ids * (self._model.card.context // len(ids) + 1))[: self._model.card.context - room]
        reply = await self._reply(self._model.engine, "cut", ids, room)
        reply.record("overflow", reply.usage)

    async def _refused(self) -> None:
        self._count()
        tag = {"structured_outputs": {"structural_tag": "no tag"}}
        await self._complete(self._model.engine, "refused", self._prompt(), 4, **tag)

    async def _complete(
        self, engine: Engine, role: str, ids: list[int], max_tokens: int, **options: Any
    ) -> None:
        reply = await self._reply(engine, role, ids, max_tokens, **options)
        reply.record("ok", reply.usage)

    async def _reply(
        self, engine: Engine, role: str, ids: list[int], max_tokens: int, **options: Any
    ) -> EngineResponse:
        return await engine.complete(
            ids, max_tokens=max_tokens, labels={"role": role}, ignore_eos=True, **options
        )

    def _prompt(self) -> list[int]:
        """Ids of which the beginning may be cached."""
        return self._draw.choice(self._prefixes) + self._ids(self._draw.randint(1, 400))

    def _ids(self, length: int) -> list[int]:
        return [self._draw.randrange(100, 1000) for _ in range(length)]
