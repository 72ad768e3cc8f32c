"""Cached tokens of known conversations compared with the maximum: `speedrunner bench probe cache`.

One conversation grows turn by turn. Then siblings that share a prefix, warmed up before, start at once. The
most that the cache can provide for each request is what an ideal cache with its rule would
(`serving.engine.ideal_cache`).
"""

from __future__ import annotations

import secrets

import msgspec

from serving.deployment import Deployment
from serving.engine.client import run_together
from serving.engine.metrics import read_counters
from serving.errors import ContextOverflow
from serving.meter import LedgerRow
from serving.model import Messages, Model
from serving.model_config import ModelConfig
from serving.probes.start_check import OTHERS, advice, note_tools, text_of
from speedrunner.bench.engine import (
    CACHE_TARGETS,
    cache_of,
    completions_api,
    describe_cache,
    open_engine,
)
from speedrunner.bench.measurement import Figure, MeasuredTable, Measurement
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.plain.console import Status

SYSTEM_TOKENS = 2000
REPLY_TOKENS = 160
SIBLINGS = 8


class CacheRequest(msgspec.Struct, frozen=True):
    """One request, in tokens.

    Attributes:
        cached_tokens: name of the request, for users.
        expected: the most prompt tokens that the cache can provide.
        reported: the tokens that the engine reports as cached.
    """

    cached_tokens: str
    prompt: int
    expected: int
    reported: int


async def measure_cache(model_config: ModelConfig, config: Config, turns: int, status: Status) -> Measurement:
    """Probe the cache of a model's engine. Raises as `probe_cache`; `InvalidConfig` for too many turns."""
    async with open_engine(completions_api(model_config), config, status) as deployment:
        try:
            return await probe_cache(deployment, turns, status)
        except ContextOverflow as error:
            raise InvalidConfig(f"--turns {turns} is too many: {error}") from error


async def probe_cache(deployment: Deployment, turns: int, status: Status) -> Measurement:
    """Play a conversation of this many turns, then siblings of another one.

    Raises:
        ServerFailed: the engine reports no cache.
        ContextOverflow: the turns do not fit the model's context.
        ServingError: the engine failed.
    """
    model_config, cache = deployment.model_config, cache_of(deployment)
    parts: dict[str, list[CacheRequest]] = {"turn": [], "sibling": []}

    def write(row: LedgerRow) -> None:
        part = parts.get(row.labels.get("part", ""))
        if part is not None and row.usage is not None:
            name = f"{row.labels['part']} {len(part) + 1}"
            part.append(CacheRequest(name, row.usage.prompt, row.cacheable or 0, row.usage.cached))
            sent = sum(map(len, parts.values()))
            status(f"{sent} of {turns + SIBLINGS} requests, the last with {row.usage.cached} tokens cached")

    counted = await read_counters(deployment.endpoint)
    async with deployment.client(write) as model:
        await _converse(model, "turn", _opening(model, "0", secrets.token_hex(4)), turns)
        nonce = secrets.token_hex(4)
        family = [_opening(model, str(number), nonce) for number in range(SIBLINGS)]
        prefix = await model.warm("actor", family[0], note_tools(), {})
        await run_together(lambda opening: _converse(model, "sibling", opening, 1), family, SIBLINGS)
    hits = (await read_counters(deployment.endpoint) - counted).cached > 0
    requests = [*parts["turn"], *parts["sibling"]]
    prompt, expected, reported = (
        sum(getattr(each, name) for each in requests) for name in ("prompt", "expected", "reported")
    )
    share = reported / expected if expected else 0.0
    found = Measurement(
        describe_cache(model_config, cache),
        figures=[
            Figure("share of the maximum", share, at_least=CACHE_TARGETS[model_config.cache], form=".2%")
        ],
        tables=[MeasuredTable("requests", [*requests, CacheRequest("all", prompt, expected, reported)])],
        facts={"model": model_config.name, "cache": cache, "prefix": prefix},
        notes=[f"(siblings share a prefix of {prefix} tokens, which was sent once before them)"],
    )
    changes = advice(model_config, cache, hits, reported > 0)
    if not found.met:
        changes = changes or [OTHERS]
    found.notes += [f"To change: {line}" for line in changes]
    found.facts["advice"] = changes
    return found


def _opening(model: Model, name: str, nonce: str) -> Messages:
    """Write first messages of known lengths; `nonce` separates them from all earlier requests."""
    system = text_of(model, nonce, min(SYSTEM_TOKENS, model.model_config.context // 4))
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": text_of(model, name, REPLY_TOKENS)},
    ]


async def _converse(model: Model, part: str, opening: Messages, turns: int) -> None:
    talk = model.converse("actor", opening, note_tools(), {"role": "probe", "part": part})
    try:
        for number in range(turns):
            if number:
                talk.tell(text_of(model, "another", REPLY_TOKENS))
            await talk.ask()
    finally:
        talk.close()
