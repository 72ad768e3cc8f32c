"""The client's CPU time per turn, by conversations in flight and length: `python -m tests.bench client`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from serving.admission import Replica
from serving.apis.completions import TokenConversation
from serving.engine.cache_config import CacheConfig
from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.meter import LedgerRow, Meter
from serving.model import Model
from serving.model_config import ModelConfig
from serving.probes.start_check import note_tools
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import prepare
from speedrunner.bench.engine import completions_api
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.config.console import Status
from tests.bench import canned_answers
from tests.bench.engine_process import engine_process

CPU_MS_TARGET = 3.0

ANSWER_TOKENS, REPLY_TOKENS = 64, 128

DELAY_S = 0.01
"""Time until an answer comes, for each conversation in flight: longer than the client's work on a turn, so
that all of them wait for an answer at the same time."""

TURNS, LEAST_TURNS = 256, 4
"""Turns of a level in all, and of each of its conversations."""


class Level(msgspec.Struct, frozen=True):
    """Conversations of one length, so many of them in flight.

    Attributes:
        tokens: of each prompt at first.
        cpu_ms: CPU time of this process per turn.
    """

    in_flight: int
    tokens: int
    turns: int
    cpu_ms: float


async def measure_client(
    model_config: ModelConfig, in_flight: Sequence[int], tokens: Sequence[int], status: Status
) -> Measurement:
    """Measure turns against a server without a model: each number of conversations with the shortest prompts,
    then each length with one conversation.

    A turn is a request with the whole prompt, its answer, the ledger row and the framed reply. What plays the
    episode (environment, records) is not part of it.

    Args:
        model_config: names tokenizer and tool format; on the completions API.

    Raises `InvalidConfig`, `InvalidModelConfig`, `ServingError`.
    """
    model_config = msgspec.structs.replace(completions_api(model_config), context=2 * max(tokens) + 100_000)
    tokenizer = ChatTokenizer(prepare(model_config, status), model_config.revision)
    cases = dict.fromkeys([*((many, min(tokens)) for many in in_flight), *((1, length) for length in tokens)])
    levels = []
    for many, length in cases:
        status(f"{many} in flight, {length} tokens")
        levels.append(await _measure_level(model_config, tokenizer, many, length))
    most = max(level.cpu_ms for level in levels)
    return Measurement(
        f"{model_config.name}: CPU time of the client per turn",
        figures=[Figure("most CPU ms per turn", most, at_most=CPU_MS_TARGET, form=".2f")],
        tables=[Table("levels", levels, columns("in_flight", "tokens", "turns", "cpu_ms:.2f"))],
        facts={"model": model_config.name, "answer_tokens": ANSWER_TOKENS, "reply_tokens": REPLY_TOKENS},
    )


async def _measure_level(
    model_config: ModelConfig, tokenizer: ChatTokenizer, in_flight: int, tokens: int
) -> Level:
    assert model_config.tool_format is not None
    words = tokenizer.outside_text("the lamp is in the room to the north; " * 100)
    end = tokenizer.control_id(FORMATS[model_config.tool_format].FRAME.end_of_turn)
    reply = tokenizer.decode(words[:REPLY_TOKENS])
    unit = model_config.match_unit or 16
    cache = CacheConfig(unit, 10**9, True, unit, model_config.cache == "hybrid")
    turns = max(LEAST_TURNS, TURNS // in_flight)
    rows: list[LedgerRow] = []
    async with canned_engine([[*words[: ANSWER_TOKENS - 1], end]], DELAY_S * in_flight) as (endpoint, _):
        engine = Engine(endpoint, model_config.name, Meter(rows.append, model_config.prices))
        model = Model(model_config, engine, tokenizer, [Replica(cache, admission=True)])
        talks = [_conversation(model, number, tokens, words) for number in range(in_flight)]

        async def play(talk: TokenConversation, turns: int) -> None:
            for _ in range(turns):
                await talk.ready()
                await talk.ask()
                talk.tell(reply)

        try:
            await asyncio.gather(*(play(talk, 1) for talk in talks))  # opens the connections
            began = time.process_time()
            await asyncio.gather(*(play(talk, turns) for talk in talks))
            cpu_s = time.process_time() - began
        finally:
            await engine.close()
    return Level(in_flight, tokens, turns * in_flight, 1000 * cpu_s / (turns * in_flight))


def _conversation(model: Model, number: int, tokens: int, words: list[int]) -> TokenConversation:
    messages = [{"role": "user", "content": f"Conversation {number}."}]
    talk = model.converse("actor", messages, note_tools(), {"episode": str(number)})
    assert isinstance(talk, TokenConversation)
    missing = max(tokens - len(talk.transcript.ids), 0)
    talk.transcript.ids += (words * (missing // len(words) + 1))[:missing]
    return talk


def canned_engine(
    answers: Sequence[list[int]], delay_s: float = 0.0
) -> AbstractAsyncContextManager[tuple[Endpoint, int]]:
    """Run a server that gives these answers (token ids) in turn, each after `delay_s` seconds."""
    return engine_process((sys.executable, "-P", canned_answers.__file__), answers, str(delay_s))
