"""Sends known conversations to an engine, and compares what its prefix cache gives with the most that it can.

One conversation grows turn by turn; then siblings that share a warmed-up prefix begin at once. For each
request the most is what block size, match unit and kind of model allow (`CacheConfig.most_cached`).
"""

from __future__ import annotations

import asyncio
import secrets

import msgspec

from serving.cards import ModelCard
from serving.deployment import Deployment
from serving.engine.metrics import CacheConfig, read_counters
from serving.errors import ServerFailed
from serving.meter import LedgerRow
from serving.model import Messages, Model
from serving.probes.tool_battery import battery
from serving.tokens.tools import ToolSpec

SYSTEM_TOKENS = 2000
REPLY_TOKENS = 160
SIBLINGS = 8

TARGETS = {"attention": 0.99, "hybrid": 0.97}
"""Least share of the most that a cache can give, by the card's kind of cache."""


class CacheRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, in tokens.

    Attributes:
        expected: the most prompt tokens that the cache can give.
        reported: what the engine says that it gave.
    """

    prompt: int
    expected: int
    reported: int


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the probe shows.

    Attributes:
        cache: the first replica's.
        turns: of the one conversation, in their order.
        siblings: of conversations that share a warmed-up prefix.
        prefix: length of that prefix.
        target: least share of the maximum.
        advice: what to change, one line each.
    """

    cache: CacheConfig
    turns: list[CacheRequest]
    siblings: list[CacheRequest]
    prefix: int
    target: float
    advice: list[str]

    @property
    def expected(self) -> int:
        """Tokens, over all requests."""
        return sum(each.expected for each in self._all)

    @property
    def reported(self) -> int:
        """Tokens, over all requests."""
        return sum(each.reported for each in self._all)

    @property
    def share_of_maximum(self) -> float:
        """What was given of the most that could be; what is given beyond it makes up for nothing.

        0 where nothing can be given, since nothing is cached then.
        """
        given = sum(min(each.expected, each.reported) for each in self._all)
        return given / self.expected if self.expected else 0.0

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.share_of_maximum >= self.target

    @property
    def _all(self) -> list[CacheRequest]:
        return [*self.turns, *self.siblings]


async def probe_cache(deployment: Deployment, turns: int) -> CacheReport:
    """Play a conversation of so many turns, then siblings of another one.

    Raises:
        ServerFailed: the engine tells nothing about its cache.
        ContextOverflow: so many turns do not fit the model's context.
        ServingError: the engine failed.
    """
    if not deployment.caches:
        raise ServerFailed(f"the engine at {deployment.endpoint} tells nothing about its prefix cache")
    card, cache = deployment.card, deployment.caches[0]
    rows: list[LedgerRow] = []
    counted = await read_counters(deployment.endpoint)
    async with deployment.client(rows.append) as model:
        await _converse(model, _opening(model, "0"), turns, "turns")
        family = [_opening(model, str(number), nonce) for nonce in [_nonce()] for number in range(SIBLINGS)]
        warmed = await model.warm("actor", family[0], note_tools(), {})
        await asyncio.gather(*(_converse(model, messages, 1, "siblings") for messages in family))
    report = CacheReport(
        cache=cache,
        turns=_requests(rows, "turns"),
        siblings=_requests(rows, "siblings"),
        prefix=max((length for length, _ in warmed), default=0),
        target=TARGETS[card.cache],
        advice=[],
    )
    hits = (await read_counters(deployment.endpoint) - counted).cached > 0
    found = advice(card, cache, hits, report.reported > 0)
    if not report.met:
        found = [*found, *_room(report)] or [OTHERS]
    return msgspec.structs.replace(report, advice=found)


OTHERS = "other requests may have pushed it out of the cache meanwhile: probe an idle server"


def advice(card: ModelCard, cache: CacheConfig, hits: bool, reported: bool) -> list[str]:
    """What is wrong with a server's settings for its prefix cache, one line each.

    Args:
        hits: whether the engine's own counters show cached tokens.
        reported: whether its answers do.
    """
    if not cache.enable_prefix_caching:
        return ["its prefix cache is off: start it with --enable-prefix-caching"]
    found = []
    if hits and not reported:
        found.append("it does not report cached tokens: start it with --enable-prompt-tokens-details")
    if cache.hybrid and cache.match_unit == cache.block_size:
        found.append(
            f"hits end at whole blocks of {cache.block_size} tokens: a hybrid model needs"
            " --prefix-match-unit 16, so that a turn resumes where the last prompt ended"
        )
    if cache.hybrid and not card.gpus and (not hits or "block-size" not in card.server.flags):
        found.append(
            f"on a CPU, a hybrid model needs the block size that vLLM chose for it: --block-size"
            f" {cache.block_size} (logged as 'Setting attention block size to ...')"
        )
    return found


def _room(report: CacheReport) -> list[str]:
    """Whether the cache is too small for what was sent."""
    cache = report.cache
    alone = max(cache.blocks(each.prompt) for each in report.turns)
    own = sum(cache.blocks(each.prompt, shared=report.prefix) for each in report.siblings)
    needed = max(alone, own + report.prefix // cache.block_size)
    if needed < cache.num_gpu_blocks:
        return []
    return [
        f"its cache of {cache.num_gpu_blocks} blocks is too small for them (they take {needed}):"
        " raise --gpu-memory-utilization (on a CPU, VLLM_CPU_KVCACHE_SPACE)"
    ]


def _opening(model: Model, name: str, nonce: str | None = None) -> Messages:
    """A first prompt of a known length; `nonce` keeps it apart from everything that was sent before."""
    system_tokens = min(SYSTEM_TOKENS, model.card.context // 4)
    system = text_of(model, nonce or _nonce(), system_tokens)
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": text_of(model, name, REPLY_TOKENS)},
    ]


def note_tools() -> list[ToolSpec]:
    """Tools whose calls are short texts, or nothing."""
    return list(battery()[1].tools)


def text_of(model: Model, name: str, tokens: int) -> str:
    """A text that begins with `name` and has about so many tokens, never fewer."""
    line = f"{name} was seen here; go on, and say what else there is.\n"
    return line * -(-tokens // model.count_tokens(line))


async def _converse(model: Model, messages: Messages, turns: int, part: str) -> None:
    talk = model.converse("actor", messages, note_tools(), {"role": "probe", "part": part})
    try:
        for _ in range(turns):
            await talk.ask()
            talk.tell(text_of(model, "another", REPLY_TOKENS))
    finally:
        talk.close()


def _requests(rows: list[LedgerRow], part: str) -> list[CacheRequest]:
    return [
        CacheRequest(prompt=row.usage.prompt, expected=row.cacheable or 0, reported=row.usage.cached)
        for row in rows
        if row.usage is not None and row.labels.get("part") == part
    ]


def _nonce() -> str:
    return secrets.token_hex(4)
