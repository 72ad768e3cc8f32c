"""Single prompts from 8k tokens up to the context: first token cold and cached, output tokens/s."""

from __future__ import annotations

import random
import secrets
import time

import msgspec

from serving.deployment import Deployment
from serving.engine.prompt import Prompt
from serving.model import Model
from serving.probes.tool_battery import LABELS
from speedrunner.bench.measurement import Measurement, Table
from speedrunner.config.console import Status

SHORTEST = 8192
"""Tokens of the first prompt; each further one has twice as many."""

MORE, WRITTEN = 16, 32
"""Tokens of the next turn's new text, and tokens that are generated after it."""

IDS = (100, 1000)
"""Range of the random token ids of prompts; every vocabulary has them."""


class PromptRow(msgspec.Struct, frozen=True):
    """One prompt.

    Attributes:
        tokens: its length.
        cold_s: seconds until the first token, with none of it in the cache.
        cold_per_s: prompt tokens per second in that case.
        next_turn_s: seconds until the first token of the same prompt with a few more tokens.
        cached: tokens of that longer prompt that the cache provided.
        output_per_s: tokens per second generated after it, with one request alone.
    """

    tokens: int
    cold_s: float
    cold_per_s: float
    next_turn_s: float
    cached: int
    output_per_s: float | None


COLUMNS = {
    "prompt tokens": "tokens",
    "first token, cold, s": "cold_s:.2f",
    "prompt tokens/s, cold": "cold_per_s:.0f",
    "first token, next turn, s": "next_turn_s:.3f",
    "cached tokens": "cached",
    "output tokens/s": "output_per_s:.1f",
}


def prompt_lengths(context: int) -> list[int]:
    """Return lengths in tokens: doubling from `SHORTEST`, then the longest that leaves room for an answer."""
    longest = context - MORE - WRITTEN - 1
    lengths = [SHORTEST << n for n in range(32) if SHORTEST << n < longest]
    return [*lengths, longest]


async def measure_long_prompts(deployment: Deployment, seconds: float, status: Status) -> Measurement:
    """Send random prompts one after another, the longest last.

    Args:
        seconds: time limit from the start; a prompt that would probably exceed it is left out, and named.

    Raises `ServingError`.
    """
    model_config = deployment.model_config
    found = Measurement(f"{model_config.name}: single prompts of random tokens, nothing else in flight")
    rows: list[PromptRow] = []
    end = time.monotonic() + seconds
    async with deployment.client(lambda row: None, admission=False) as model:
        for tokens in prompt_lengths(model_config.context):
            # Attention takes time proportional to the square of the length.
            expected_s = (rows[-1].cold_s + 1) * (tokens / rows[-1].tokens) ** 2 if rows else 0.0
            if rows and time.monotonic() + expected_s > end:
                left_out = f"{tokens} tokens: not measured, they would take up to {expected_s:.0f} s more"
                found.notes.append(left_out)
                break
            status(f"a prompt of {tokens} tokens")
            rows.append(await _measure(model, tokens))
    found.tables = [Table("prompts", rows, COLUMNS)]
    return found


async def _measure(model: Model, tokens: int) -> PromptRow:
    draw = random.Random(secrets.token_bytes(8))
    ids = [draw.randrange(*IDS) for _ in range(tokens + MORE)]
    cold_s, _, _ = await _complete(model, ids[:tokens], 1)
    next_s, cached, _ = await _complete(model, ids, 1)
    whole_s, _, written = await _complete(model, ids, 1 + WRITTEN)
    per_s = (written - 1) / (whole_s - next_s) if written > 1 and whole_s > next_s else None
    return PromptRow(tokens, cold_s, tokens / cold_s, next_s, cached, per_s)


async def _complete(model: Model, ids: list[int], most: int) -> tuple[float, int, int]:
    """Send one prompt; return seconds, cached tokens and generated tokens."""
    reply = await model.engine.complete(
        Prompt(ids), max_tokens=most, labels=LABELS, replica=model.replicas[0].address, ignore_eos=True
    )
    reply.record("ok", reply.usage)
    return reply.seconds, reply.usage.cached, reply.usage.completion
