"""What our client costs beside a bare load generator, and by itself: `speedrunner bench rollout`."""

from __future__ import annotations

import itertools
import secrets
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil

from serving.admission import Replica
from serving.deployment import Deployment
from serving.engine.client import Engine
from serving.engine.http import HttpClient, HttpError
from serving.engine.metrics import CacheConfig
from serving.errors import RequestFailed
from serving.meter import Meter
from serving.model import Model
from serving.model_card import ModelCard
from serving.options import REQUEST_TIMEOUT_S
from serving.together import together
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import prepare
from speedrunner.measure.bench_client import canned_engine
from speedrunner.measure.engine import opened
from speedrunner.measure.measurement import Figure, Measurement, Status, Table, columns, within
from speedrunner.measure.played_episodes import BenchRun, PlayedEpisode, bench_run
from speedrunner.measure.processes import Leftovers, Stopwatch, below, memory_mb
from speedrunner.runs.setup import Setup

RATIO_TARGET, GPU_RATIO_TARGET = 0.90, 0.95
TURNS_TARGET = 250.0


class Pair(msgspec.Struct, kw_only=True):
    """A rollout through our engine, and its bare replay.

    Attributes:
        our_client, bare_replay: output tokens per second.
        ratio: ours over the bare ones.
        our_cpu_ms, bare_cpu_ms: CPU time per output token of all processes together, the engine's too,
            which depends little on what else the machine does; `None` where the engine is not ours.
        cpu_ratio: what the bare ones take over what ours take.
    """

    pair: int
    our_client: float
    bare_replay: float
    ratio: float
    our_cpu_ms: float | None = None
    bare_cpu_ms: float | None = None
    cpu_ratio: float | None = None


async def measure_rollout(
    setup: Setup, in_flight: int, pairs: int, client_in_flight: int, status: Status
) -> Measurement:
    """Compare with a bare replay, then measure the client alone with the answers of the last rollout.

    Raises `ServingError`, `HostError`, `StorageError`, `RunStopped`.
    """
    leftovers = Leftovers()
    with bench_run(setup) as run:
        async with opened(setup.card, setup.config, status) as deployment:
            compared, streams = await compare(deployment, in_flight, pairs, status, run)
        answers = [ids for each in streams for ids in each.answers]
        client = await measure_client(setup, client_in_flight, answers, status, run)
    left = await leftovers.found()
    return _measurement(setup.card, in_flight, compared, client, left)


async def compare(
    deployment: Deployment, in_flight: int, pairs: int, status: Status, run: BenchRun
) -> tuple[list[Pair], list[TokenStream]]:
    """Play as many episodes at once as `in_flight`, and replay what was sent, `pairs` times.

    Returns the figures, and what was sent last. Raises as `measure_rollout`.
    """
    measured: list[Pair] = []
    streams: list[TokenStream] = []
    async with (
        run.hosts(in_flight) as pool,
        deployment.client(run.record) as model,
        deployment.endpoint.client(REQUEST_TIMEOUT_S) as http,
    ):
        for number in range(1, pairs + 1):
            so_far = ", ".join(f"{each.ratio:.3f}" for each in measured) or "none"
            told = within(status, f"ratios so far: {so_far}; pair {number} of {pairs}")
            prefix = await run.warm(model)
            await pool.ready()
            watch = Stopwatch()
            played = await run.play(model, pool, in_flight, told)
            ours = watch.per_token(sum(each.trajectory.usage.completion for each in played))
            told(f"{ours[0]:.0f} output tokens/s; its bare replay")
            streams = [TokenStream.of(each) for each in played]
            bare = await replay(deployment, http, streams, prefix)
            pair = Pair(pair=number, our_client=ours[0], bare_replay=bare[0], ratio=ours[0] / bare[0])
            if deployment.server is not None:
                pair.our_cpu_ms, pair.bare_cpu_ms, pair.cpu_ratio = ours[1], bare[1], bare[1] / ours[1]
            measured.append(pair)
    return measured, streams


async def replay(
    deployment: Deployment, http: HttpClient, streams: Sequence[TokenStream], prefix: list[int]
) -> tuple[float, float]:
    """Send what episodes sent, with nothing around it; return output tokens/s, and CPU ms per output token.

    Args:
        prefix: token ids that all streams begin with; sent alone before the clock starts.

    Raises `RequestFailed`.
    """
    client = BareClient(deployment, http, secrets.token_hex(8))
    await client.warm(streams, prefix)
    watch = Stopwatch()
    return watch.per_token(await client.play(streams))


def ratio_target(card: ModelCard) -> float:
    """On a CPU, both sides share the machine's cores with the engine."""
    return GPU_RATIO_TARGET if card.gpus else RATIO_TARGET


def _measurement(
    card: ModelCard, in_flight: int, pairs: list[Pair], client: list[Figure], left: list[str]
) -> Measurement:
    ratio = statistics.median(each.ratio for each in pairs)
    cpu_ratios = [each.cpu_ratio for each in pairs if each.cpu_ratio is not None]
    shown = columns("pair", "our_client:.0f", "bare_replay:.0f", "ratio:.3f", "our_cpu_ms", "bare_cpu_ms")
    return Measurement(
        f"{card.name}: output tokens per second, and CPU ms for each, with {in_flight} episodes in flight",
        figures=[
            Figure("median ratio to the bare replay", ratio, at_least=ratio_target(card), form=".3f"),
            Figure(
                "the same by CPU time per token, on which other work of the machine tells less",
                statistics.median(cpu_ratios) if cpu_ratios else None,
                form=".3f",
            ),
            *client,
            Figure("tasks, threads and processes left behind", len(left), at_most=0),
        ],
        tables=[Table("pairs", pairs, shown)],
        facts={"model": card.name, "in_flight": in_flight, "left_behind": left},
        notes=[f"LEFT BEHIND: {each}" for each in left],
    )


@dataclass(frozen=True)
class TokenStream:
    """One episode as its engine saw it.

    Attributes:
        prompt: token ids of the first prompt.
        answers: ids of each answer.
        replies: ids that followed each answer; none after the last.
        most_tokens: that an answer may take.
        options: what each request carried beside prompt and length.
        replica: that it was bound to, where there are several.
    """

    prompt: list[int]
    answers: list[list[int]]
    replies: list[list[int]]
    most_tokens: int
    options: dict[str, Any]
    replica: int | None

    @classmethod
    def of(cls, played: PlayedEpisode) -> TokenStream:
        """Take an episode's conversation apart."""
        talk, ids = played.talk, played.talk.transcript.ids
        usages = [turn.usage for turn in played.trajectory.turns]
        ends = [(usage.prompt, usage.prompt + usage.completion) for usage in usages]
        return cls(
            prompt=ids[: ends[0][0]],
            answers=[ids[begin:end] for begin, end in ends],
            replies=[*(ids[end:begin] for (_, end), (begin, _) in itertools.pairwise(ends)), []],
            most_tokens=talk.transcript.answer_tokens,
            options=talk.options,
            replica=talk.replica.address,
        )


class BareClient:
    """A load generator with nothing around it.

    Answers are sampled anew under the same tags, and what the environment said follows them as recorded, so
    that the cache can give as much as it gave to the rollout.

    Args:
        salt: keeps its part of the cache apart from everything that was sent before.
    """

    def __init__(self, deployment: Deployment, http: HttpClient, salt: str) -> None:
        self._card = deployment.card
        self._http = http
        self._salt = salt

    async def warm(self, streams: Sequence[TokenStream], prefix: list[int]) -> None:
        """Send the prefix that the streams share alone, as the rollout did. Raises `RequestFailed`."""
        for replica in {each.replica for each in streams}:
            await self._complete(prefix, 1, {}, replica)

    async def play(self, streams: Sequence[TokenStream]) -> int:
        """Send what the episodes sent, all at once; returns the output tokens. Raises `RequestFailed`."""
        return sum(await together(self._play, streams, len(streams)))

    async def _play(self, stream: TokenStream) -> int:
        tokens, ids = 0, list(stream.prompt)
        for reply in stream.replies:
            most = min(stream.most_tokens, self._card.context - len(ids))
            if most < 1:
                break
            answer = await self._complete(ids, most, stream.options, stream.replica)
            tokens += len(answer)
            ids += answer + reply
        return tokens

    async def _complete(
        self, ids: list[int], max_tokens: int, options: dict[str, Any], replica: int | None
    ) -> list[int]:
        """One answer's token ids."""
        fixed = {"model": self._card.name, "return_token_ids": True, "max_tokens": max_tokens}
        headers = {} if replica is None else {"X-data-parallel-rank": str(replica)}
        body = msgspec.json.encode({**fixed, **options, "cache_salt": self._salt, "prompt": ids})
        try:
            response = await self._http.post("/v1/completions", body, headers)
        except HttpError as error:
            raise RequestFailed(f"a bare request failed: {error}") from error
        if response.status != 200:
            raise RequestFailed(f"a bare request was answered with {response.status}: {response.text}")
        answer: list[int] = response.json()["choices"][0]["token_ids"]
        return answer


async def measure_client(
    setup: Setup, in_flight: int, answers: Sequence[list[int]], status: Status, run: BenchRun
) -> list[Figure]:
    """Play episodes with a server that answers at once. Raises `HostError`, `StorageError`, `RunStopped`.

    CPU seconds are those of this process (environments run in others); megabytes are those at the end, of
    this process beyond what it had before, and of the hosts with their sandboxes.
    """
    status = within(status, f"the client alone, {in_flight} episodes in flight")
    card = setup.card
    tokenizer = ChatTokenizer(prepare(card, status), card.revision)
    unit = card.match_unit or 16
    replica = Replica(CacheConfig(unit, 1_000_000, True, unit, card.cache == "hybrid"), admission=True)
    own = psutil.Process()
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(canned_engine(answers))
        before_mb = memory_mb([own, *below()])
        engine = Engine(endpoint, card.name, Meter(run.record, card.prices))
        stack.push_async_callback(engine.close)
        pool = await stack.enter_async_context(run.hosts(in_flight))
        await pool.ready()
        began = time.process_time()
        model = Model(card, engine, tokenizer, [replica])
        played = await run.play(model, pool, in_flight, status)
        cpu_s = time.process_time() - began
        mb = memory_mb([own, *below()]) - before_mb
    prompts = [turn.usage.prompt for each in played for turn in each.trajectory.turns]
    turns_per_s = len(prompts) / cpu_s
    return [
        Figure("client alone, episodes in flight", in_flight),
        Figure("client alone, turns", len(prompts)),
        Figure("client alone, tokens of a prompt", statistics.mean(prompts)),
        Figure("client alone, CPU s", cpu_s),
        Figure("client alone, turns per CPU s", turns_per_s, at_least=TURNS_TARGET),
        Figure("client alone, MB per episode in flight, its host included", mb / in_flight),
    ]
