"""Requests of every fate: answered, disconnected, timed out, too long, cut, refused."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from serving.apis.completions import TokenConversation
from serving.engine.client import Engine, Prompt, run_together
from serving.errors import ContextOverflow, EngineDead, RequestFailed, RequestRefused
from serving.model import Model
from serving.model_config import Roles
from serving.probes.tool_battery import SYSTEM, battery

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


@dataclass
class Traffic:
    """Requests of every fate, drawn with a seed.

    Attributes:
        impatient: engines that wait for so long only as `TIMEOUTS_S` say.
    """

    model: Model
    impatient: list[Engine]

    def __post_init__(self) -> None:
        self._left = 0
        self._draw = random.Random(0)
        self._prefixes = [self._ids(256) for _ in range(4)]
        self._roles = itertools.cycle(("actor", "inducer", "critic"))
        self._patience = itertools.cycle(self.impatient)

    async def send(self, fates: Mapping[str, int], requests: int, in_flight: int) -> None:
        """Send so many requests: one of each fate first, then as many of each as its weight says."""
        self._left = requests
        deck = [fate for fate, weight in fates.items() for _ in range(weight)]
        self._draw.shuffle(deck)
        drawn = itertools.chain(fates, itertools.cycle(deck))
        await run_together(self._work, [drawn] * in_flight, in_flight)

    async def _work(self, fates: Iterator[str]) -> None:
        while self._left > 0:
            fate = next(fates)
            self._left -= 1
            # As was asked for, or turned away too often, or by an engine too busy to call itself healthy; one
            # that is really gone shows when its counters are read.
            with suppress(ContextOverflow, RequestFailed, RequestRefused, EngineDead):
                await self._meet(fate)

    async def _meet(self, fate: str) -> None:
        draw, context = self._draw, self.model.model_config.context
        match fate:
            case "answered":
                await self._converse()
            case "long":
                # An answer that takes many blocks, so that there may be none left for another.
                await self._complete(fate, self._prompt(), LONGEST_ANSWER)
            case "disconnected":
                request = self._complete(fate, self._prompt(), LONGEST_ANSWER)
                with suppress(TimeoutError):
                    await asyncio.wait_for(request, timeout=draw.uniform(0, LONGEST_WAIT_S))
            case "timed out":
                ids, most = self._prompt(), draw.choice([4, 16, LONGEST_ANSWER])
                await self._complete(fate, ids, most, next(self._patience))
            case "too long":
                await self._complete(fate, self._ids(draw.choice([context, context + 1, 2 * context])), 1)
            case "cut":
                # The context ends in the middle of the answer.
                room = draw.randint(1, 10)
                ids = draw.choice(self._prefixes)
                ids = (ids * (context // len(ids) + 1))[: context - room]
                await self._complete(fate, ids, room)
            case "refused":
                no_tag = {"structural_tag": "no tag"}
                await self._complete(fate, self._prompt(), 4, structured_outputs=no_tag)

    async def _converse(self) -> None:
        """Some turns of a conversation, with thinking or without."""
        role = next(self._roles)
        thinks = role != "actor" and self.model.model_config.thinking != "none"
        settings = msgspec.structs.replace(
            self.model.model_config.role(role),
            string_tokens=24,
            thinking_tokens=THINKING_TOKENS if thinks else 0,
        )
        probe = self._draw.choice(battery()[:4])
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": probe.message}]
        model = self.model.with_roles(Roles(settings, settings))
        talk = model.converse(role, messages, list(probe.tools), {})
        assert isinstance(talk, TokenConversation)
        try:
            await talk.ask()
            for _ in range(self._draw.randint(0, TURNS - 1)):
                if self._left <= 0:
                    break
                self._left -= 1
                talk.tell("Go on. " * self._draw.randint(1, 40))
                await talk.ask()
        finally:
            talk.close()

    async def _complete(
        self, fate: str, ids: list[int], max_tokens: int, engine: Engine | None = None, **options: Any
    ) -> None:
        reply = await (engine or self.model.engine).complete(
            Prompt(ids), max_tokens=max_tokens, labels={"role": fate}, ignore_eos=True, **options
        )
        reply.record("overflow" if fate == "cut" else "ok", reply.usage)

    def _prompt(self) -> list[int]:
        """Ids of which the beginning may be cached."""
        return self._draw.choice(self._prefixes) + self._ids(self._draw.randint(1, 400))

    def _ids(self, length: int) -> list[int]:
        return [self._draw.randrange(100, 1000) for _ in range(length)]
