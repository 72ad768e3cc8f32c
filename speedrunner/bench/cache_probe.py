"""What an engine's prefix cache gives to known conversations: `speedrunner probe cache`.

One conversation grows turn by turn; then siblings that share a warmed-up prefix begin at once. For each
request the most that it can give is what an ideal cache of its rule could (`serving.engine.ideal_cache`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from serving.deployment import Deployment
from serving.engine.metrics import CacheConfig, read_counters
from serving.errors import ContextOverflow
from serving.meter import LedgerRow
from serving.model import Model
from serving.model_card import ModelCard
from serving.probes.start_check import OTHERS, advice, note_tools, text_of
from serving.together import together
from speedrunner.bench.cache_use import TARGETS
from speedrunner.bench.engine import cache_of, cache_text, opened, tokens_route
from speedrunner.bench.measurement import Figure, Measurement, Table
from speedrunner.bench.player import Script, play_script
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.console import Status
from speedrunner.results.ledger import token_line

SYSTEM_TOKENS = 2000
REPLY_TOKENS = 160
SIBLINGS = 8


class CacheRequest(msgspec.Struct, frozen=True):
    """One request, in tokens.

    Attributes:
        expected: the most prompt tokens that the cache can give.
        reported: what the engine says that it gave.
    """

    cached_tokens: str
    prompt: int
    expected: int
    reported: int


async def measure_cache_use(card: ModelCard, config: Config, turns: int, status: Status) -> Measurement:
    """Probe the cache of the card's engine. Raises as `probe_cache`; `InvalidConfig` for too many turns."""
    async with opened(tokens_route(card), config, status) as deployment:
        try:
            return await probe_cache(deployment, turns, status)
        except ContextOverflow as error:
            raise InvalidConfig(f"--turns {turns} are too many: {error}") from error


async def probe_cache(deployment: Deployment, turns: int, status: Status) -> Measurement:
    """Play a conversation of so many turns, then siblings of another one.

    Raises:
        ServerFailed: the engine reports no cache.
        ContextOverflow: so many turns do not fit the model's context.
        ServingError: the engine failed.
    """
    card, cache = deployment.card, cache_of(deployment)
    rows: list[LedgerRow] = []

    def write(row: LedgerRow) -> None:
        rows.append(row)
        sent, line = _of_parts(rows), token_line(_of_parts(rows))
        status(
            f"{len(sent)} of {turns + SIBLINGS} requests: {line.from_cache} tokens cached of"
            f" {line.cacheable} that could be"
        )

    counted = await read_counters(deployment.endpoint)
    # Nothing is held back, as what is measured is the engine.
    async with deployment.client(write, admission=False) as model:
        await play_script(model, _script(model, "turn", "0", secrets.token_hex(4), turns))
        nonce = secrets.token_hex(4)
        family = [_script(model, "sibling", str(number), nonce, 1) for number in range(SIBLINGS)]
        warmed = await model.warm("actor", family[0].messages, family[0].tools, {})
        await together(lambda script: play_script(model, script), family, SIBLINGS)
    hits = (await read_counters(deployment.endpoint) - counted).cached > 0
    growing, siblings = _requests(rows, "turn"), _requests(rows, "sibling")
    prefix = max((length for length, _ in warmed), default=0)
    line, target = token_line(_of_parts(rows)), TARGETS[card.cache]
    prompt, reported = line.tokens.cached + line.tokens.computed, int(line.tokens.cached)
    whole = CacheRequest("all", int(prompt), line.cacheable, reported)
    found = Measurement(
        cache_text(card, cache),
        figures=[Figure("share of the maximum", line.cache_share or 0.0, at_least=target, form=".2%")],
        tables=[Table("requests", [*growing, *siblings, whole])],
        facts={"model": card.name, "cache": cache, "prefix": prefix},
        notes=[f"(siblings share a prefix of {prefix} tokens, which was sent alone before)"],
    )
    changes = advice(card, cache, hits, reported > 0)
    if not found.met:
        changes = [*changes, *_room(cache, growing, siblings, prefix)] or [OTHERS]
    found.notes += [f"To change: {line}" for line in changes]
    found.facts["advice"] = changes
    return found


def _room(
    cache: CacheConfig, turns: Sequence[CacheRequest], siblings: Sequence[CacheRequest], prefix: int
) -> list[str]:
    """Whether the cache is too small for what was sent."""
    alone = max(cache.blocks(each.prompt) for each in turns)
    own = sum(cache.blocks(each.prompt, shared=prefix) for each in siblings)
    needed = max(alone, own + prefix // cache.block_size)
    if needed < cache.num_gpu_blocks:
        return []
    return [
        f"its cache of {cache.num_gpu_blocks} blocks is too small for them (they take {needed}):"
        " raise --gpu-memory-utilization (on a CPU, VLLM_CPU_KVCACHE_SPACE)"
    ]


def _script(model: Model, part: str, name: str, nonce: str, turns: int) -> Script:
    """Write a conversation of known lengths; `nonce` keeps it apart from everything that was sent before."""
    system = text_of(model, nonce, min(SYSTEM_TOKENS, model.card.context // 4))
    user = text_of(model, name, REPLY_TOKENS)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    replies = [text_of(model, "another", REPLY_TOKENS)] * (turns - 1)
    return Script(messages, note_tools(), replies, labels={"role": "probe", "part": part})


def _of_parts(rows: list[LedgerRow]) -> list[LedgerRow]:
    """Those of the conversation and of the siblings."""
    return [row for row in rows if "part" in row.labels]


def _requests(rows: list[LedgerRow], part: str) -> list[CacheRequest]:
    usages = [(row.usage, row.cacheable or 0) for row in rows if row.usage and row.labels.get("part") == part]
    return [
        CacheRequest(f"{part} {number}", usage.prompt, most, usage.cached)
        for number, (usage, most) in enumerate(usages, start=1)
    ]
