"""Requests that share prefixes in every way, beside what an ideal cache could give them."""

from __future__ import annotations

import random

from serving.engine.client import Engine, Prompt, run_together
from serving.engine.endpoint import Endpoint
from serving.engine.ideal_cache import IdealCache
from serving.engine.metrics import read_metrics
from serving.meter import LedgerRow, Meter
from serving.model_config import ModelConfig


async def shared_prompts(
    endpoint: Endpoint, model_config: ModelConfig, longest: int, in_flight: int
) -> list[LedgerRow]:
    """Send 32 requests that begin anywhere within what was sent or generated before; the rows of them."""
    rows: list[LedgerRow] = []
    engine = Engine(endpoint, model_config.name, Meter(rows.append, model_config.prices))
    (config,) = (await read_metrics(endpoint)).caches()
    ideal, draw = IdealCache(config), random.Random()
    known: list[list[int]] = [[]]

    async def send(number: int) -> None:
        before = draw.choice(known)
        new = draw.choices(range(300, 1000), k=draw.choice([1, config.match_unit, longest]))
        prompt = before[: draw.randrange(len(before) + 1)] + new
        reply = await engine.complete(
            Prompt(prompt, ideal), max_tokens=draw.randrange(1, 40), labels={}, ignore_eos=True
        )
        reply.record("ok", reply.usage)
        known.append(prompt + (reply.answer.choices[0].token_ids or []))

    await run_together(send, range(32), in_flight)
    await engine.close()
    return rows
