"""Recorded streams played again: with the prefix cache, and with nothing shared between requests.

Every answer is forced to what was recorded, by a tag that allows nothing else; the engine samples greedily,
so that both passes spell it with the same tokens; each pass has tags of its own, so that neither finds its
grammars compiled by the other. Prompts grow from the ids that it generates. As in the run,
an episode's next request waits for its last answer, so many episodes are in flight, and a policy's episodes
begin when those of the policy before have ended. What tools took in between is left out.

Both passes carry a `cache_salt`, which keeps them from what is in the cache already: with the cache one for
the whole pass, without a fresh one for every request. The prefix that a policy's episodes share is sent
before them in the pass with the cache only, and counted there: without a cache nobody would send it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from serving.admission import Admission, Seat
from serving.deployment import Deployment
from serving.engine.client import EngineResponse
from serving.engine.metrics import Counters
from serving.model import Model
from serving.usage import Usage
from speedrunner.measure.figures import Figures, read_figures
from speedrunner.measure.streams import Answer, Block, Renderer, Stream

Say = Callable[[str], None]


@dataclass
class Pass:
    """What playing a run's streams once came to.

    Attributes:
        cache: whether requests shared the prefix cache.
        usage: tokens of all requests.
        requests, warmings: requests for answers, and for shared prefixes.
        wall_s: from the first request of each block to its last answer, summed.
        first_token_s: of each answer, from its arrival in the engine; empty where replies do not tell.
        engine: what the engine's own figures grew by meanwhile.
        compared: answers whose tokens can be compared with the recorded ones.
        respelled: those of them that the engine spelled with another number of tokens than recorded.
        unforced: answers whose text is not the recorded one.
        skipped: answers for which the context had no room any more, as those before took more tokens.
    """

    cache: bool
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    warmings: int = 0
    wall_s: float = 0.0
    first_token_s: list[float] = field(default_factory=list)
    engine: Figures = field(default_factory=Figures)
    compared: int = 0
    respelled: int = 0
    unforced: int = 0
    skipped: int = 0

    def count(self, answer: Answer, reply: EngineResponse, text: str) -> None:
        """Add one answer."""
        self.usage += reply.usage
        self.requests += 1
        if (seconds := _first_token_s(reply)) is not None:
            self.first_token_s.append(seconds)
        if answer.complete:
            self.compared += 1
            self.respelled += reply.usage.completion != answer.usage.completion
        self.unforced += text != answer.written

    def __add__(self, other: Pass) -> Pass:
        """Both together."""
        return Pass(
            cache=self.cache,
            usage=self.usage + other.usage,
            requests=self.requests + other.requests,
            warmings=self.warmings + other.warmings,
            wall_s=self.wall_s + other.wall_s,
            first_token_s=self.first_token_s + other.first_token_s,
            engine=self.engine + other.engine,
            compared=self.compared + other.compared,
            respelled=self.respelled + other.respelled,
            unforced=self.unforced + other.unforced,
            skipped=self.skipped + other.skipped,
        )


class Replay:
    """Plays one run's streams in both ways, block by block in turn.

    Attributes:
        cached, fresh: what the two passes came to.
    """

    def __init__(self, deployment: Deployment, model: Model, renderer: Renderer, *, admission: bool) -> None:
        self.cached, self.fresh = Pass(cache=True), Pass(cache=False)
        self._deployment = deployment
        self._model = model
        self._renderer = renderer
        self._admission = admission
        self._salt = secrets.token_hex(8)

    async def play(self, blocks: list[Block], in_flight: int, say: Say) -> None:
        """Play all blocks; the way that comes first alternates, as do its advantages.

        Raises:
            ServingError: the engine failed.
        """
        # What an engine does at its first request of a kind is nobody's time.
        first = blocks[0].streams[0]
        await self._play_stream(replace(first, answers=first.answers[:1]), Pass(cache=False), 0, None, cut=2)
        for number, block in enumerate(blocks):
            passes = [self.cached, self.fresh]
            for one in passes if number % 2 == 0 else reversed(passes):
                say(f"policy v{block.policy}, {'with' if one.cache else 'without'} the cache")
                await self._play_block(block, one, in_flight)

    async def _play_block(self, block: Block, one: Pass, in_flight: int) -> None:
        endpoint, caches = self._deployment.endpoint, self._deployment.caches
        before, used = await read_figures(endpoint), _counters(one.usage)
        began = time.monotonic()
        shared = await self._warm(block, one) if one.cache else ()
        one.wall_s += time.monotonic() - began
        warmed = await read_figures(endpoint)
        admissions = [Admission(cache) for cache in caches] if one.cache and self._admission else []
        open_ = [0] * max(len(caches), 1)
        streams = iter(block.streams)
        began = time.monotonic()

        async def work() -> None:
            for stream in streams:
                replica = open_.index(min(open_))
                open_[replica] += 1
                seat = admissions[replica].seat(shared) if admissions else None
                try:
                    await self._play_stream(stream, one, replica, seat, cut=0 if one.cache else 1)
                finally:
                    open_[replica] -= 1
                    if seat is not None:
                        seat.leave()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(in_flight, len(block.streams))):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        one.wall_s += time.monotonic() - began
        after = await read_figures(endpoint)
        one.engine += after.since(before, first_tokens_since=warmed, ours=_counters(one.usage) - used)

    async def _play_stream(
        self, stream: Stream, one: Pass, replica: int, seat: Seat | None, *, cut: int
    ) -> None:
        transcript = self._renderer.transcript(stream)
        decode = self._renderer.tokenizer.decode
        # Only one of the model's end tokens ends a turn.
        ends = {str(id_): -100 for id_ in transcript.other_ends}
        for number, answer in enumerate(stream.answers):
            room = self._model.card.context - len(transcript.ids)
            if room < answer.usage.completion:
                one.skipped += len(stream.answers) - number
                return
            if seat is not None:
                await seat.enter(len(transcript.ids))
            reply = await self._model.engine.complete(
                list(transcript.ids),
                max_tokens=min(answer.most_tokens, room),
                labels={"role": "study", "episode": stream.episode},
                replica=self._address(replica),
                cache_salt=self._salt if one.cache else secrets.token_hex(8),
                structured_outputs={"structural_tag": answer.tag(cut)},
                temperature=0.0,
                logit_bias=ends,
            )
            if seat is not None:
                seat.pause()
            reply.record("ok", reply.usage)
            ids: list[int] = reply.choice["token_ids"]
            one.count(answer, reply, decode(ids[:-1]))
            transcript.answer(ids)
            if answer.reply is not None:
                transcript.tell(answer.reply)

    async def _warm(self, block: Block, one: Pass) -> tuple[int, ...]:
        """Send the prefix that the block's episodes share to each replica, as the run did. Its ids."""
        first = block.streams[0]
        prefix = self._model.shared_prefix("actor", first.messages, first.tools)
        for replica, cache in enumerate(self._deployment.caches):
            if cache.match_unit <= len(prefix) < self._model.card.context:
                reply = await self._model.engine.complete(
                    prefix,
                    max_tokens=1,
                    labels={"role": "warming"},
                    replica=self._address(replica),
                    cache_salt=self._salt,
                )
                reply.record("ok", reply.usage)
                one.usage += reply.usage
                one.warmings += 1
        return tuple(prefix) if one.warmings else ()

    def _address(self, replica: int) -> int | None:
        return replica if len(self._deployment.caches) > 1 else None


def _first_token_s(reply: EngineResponse) -> float | None:
    """From the request's arrival in the engine to its first token, where the reply tells."""
    told = reply.body.get("metrics") or {}
    queued, then = told.get("queue_time_ms"), told.get("time_to_first_token_ms")
    return None if queued is None or then is None else (queued + then) / 1000


def _counters(usage: Usage) -> Counters:
    return Counters(usage.prompt, usage.cached, usage.completion)
