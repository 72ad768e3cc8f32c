"""Rollouts: episodes played on an engine, and a bare replay of their requests, as one typed row each.

`bench rollout`, `bench cache` and `bench gpu` play them in different sizes and print different columns.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from serving.deployment import Deployment
from serving.engine.http import HttpClient, HttpError
from serving.engine.metrics import read_metrics
from serving.errors import RequestFailed
from serving.model import Model
from serving.options import REQUEST_TIMEOUT_S
from serving.together import together
from speedrunner.bench.episodes import BenchRun, PlayedEpisode
from speedrunner.bench.resources import Resources
from speedrunner.console import Status
from speedrunner.hosts.host_pool import HostPool
from speedrunner.results.ledger import token_line

PREEMPTIONS = "num_preemptions_total"


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout. Tokens are sums over all requests; `None` stands for what was not measured.

    Attributes:
        server: which server played it, for people.
        admission: whether conversations without room in the cache were queued.
        calls: maximum requests of an episode; `None`: as configured.
        prompt, output: tokens of all requests.
        output_per_s: output tokens per second.
        replay_per_s: the same for the bare replay.
        ratio: rollout over bare replay.
        cached, cacheable: prompt tokens from the prefix cache, and the most that it could give.
        of_maximum: `cached` over `cacheable`.
        hit_rate: `cached` over `prompt`.
        held_back: requests before which the episode was queued.
        preemptions: requests that the engine stopped for want of blocks, and computed again.
        cpu_ms, replay_cpu_ms: CPU time per output token of all processes, the engine's too, which depends
            little on other work of the machine; `None` where the engine was not started here.
        client_ms: CPU ms of this process per turn; environments run in other processes.
        server_ms: CPU ms of the server's process tree per output token.
        server_mb: memory of the server's process tree, in MB.
        gpu_mib: most memory used on its GPUs, in MiB.
        watts: average power of its GPUs.
        joules: energy of its GPUs per 1,000 output tokens.
        cache_blocks: blocks of the cache.
        shared_blocks: blocks of it that all conversations share.
        own_blocks: further blocks of one conversation at its end, on average.
    """

    server: str = ""
    in_flight: int
    admission: bool
    episodes: int
    calls: int | None
    turns: int
    prompt: int
    output: int
    seconds: float
    output_per_s: float
    replay_per_s: float | None = None
    ratio: float | None = None
    cached: int
    cacheable: int
    of_maximum: float
    hit_rate: float
    held_back: int
    preemptions: int
    cpu_ms: float | None
    replay_cpu_ms: float | None = None
    client_ms: float
    server_ms: float | None
    server_mb: float | None
    gpu_mib: float | None
    watts: float | None
    joules: float | None
    cache_blocks: int | None
    shared_blocks: int | None
    own_blocks: float | None


@dataclass
class Player:
    """Plays rollouts with so many episodes in flight. Made by `open_player`.

    Attributes:
        streams: the requests of the last rollout.
    """

    deployment: Deployment
    run: BenchRun
    in_flight: int
    admission: bool
    model: Model
    pool: HostPool
    http: HttpClient
    streams: list[TokenStream] = field(default_factory=list)

    async def play(
        self, episodes: int, status: Status, *, server: str = "", replayed: bool = False
    ) -> Rollout:
        """Play training episodes, and send their requests again bare if asked for.

        Raises `ServingError`, `HostError`, `StorageError`, `RunStopped`.
        """
        deployment, owned = self.deployment, self.deployment.server
        prefix = await self.run.warm(self.model)
        await self.pool.ready()
        before = (await read_metrics(deployment.endpoint)).sums(PREEMPTIONS)
        gpus = deployment.card.gpus_of_a_node if owned else 0
        async with Resources(owned.pid if owned else None, gpus) as used:
            played = await self.run.play(self.model, self.pool, episodes, status)
        after = (await read_metrics(deployment.endpoint)).sums(PREEMPTIONS)
        self.streams = [TokenStream.of(each) for each in played]
        line = token_line(row for each in played for row in each.rows)
        prompt, cached = int(line.tokens.cached + line.tokens.computed), int(line.tokens.cached)
        turns = [turn for each in played for turn in each.trajectory.turns]
        output = sum(each.trajectory.usage.completion for each in played)
        cache = deployment.replicas[0].cache
        own = [cache.blocks(len(each.talk.transcript.ids), len(prefix)) for each in played] if cache else []
        rollout = Rollout(
            server=server,
            in_flight=self.in_flight,
            admission=self.admission,
            episodes=len(played),
            calls=self.run.calls,
            turns=len(turns),
            prompt=prompt,
            output=output,
            seconds=used.seconds,
            output_per_s=output / used.seconds,
            cached=cached,
            cacheable=line.cacheable,
            of_maximum=line.cache_share or 0.0,
            hit_rate=cached / prompt,
            held_back=sum(turn.held_s > 0 for turn in turns),
            preemptions=int(after.get(PREEMPTIONS, 0) - before.get(PREEMPTIONS, 0)),
            cpu_ms=1000 * used.cpu_s / output if owned else None,
            client_ms=1000 * used.client_cpu_s / len(turns),
            server_ms=None if used.server_cpu_s is None else 1000 * used.server_cpu_s / output,
            server_mb=used.server_mb,
            gpu_mib=used.gpu_mib,
            watts=used.watts,
            joules=None if used.watts is None else 1000 * used.watts * used.seconds / output,
            cache_blocks=cache.num_gpu_blocks if cache else None,
            shared_blocks=len(prefix) // cache.block_size if cache else None,
            own_blocks=sum(own) / len(own) if own else None,
        )
        if not replayed:
            return rollout
        status(f"{rollout.output_per_s:.0f} output tokens/s; its bare replay")
        bare = BareClient(deployment, self.http, secrets.token_hex(8))
        await bare.warm(self.streams, prefix)
        async with Resources() as again:
            answered = await bare.play(self.streams)
        per_s = answered / again.seconds
        return msgspec.structs.replace(
            rollout,
            replay_per_s=per_s,
            ratio=rollout.output_per_s / per_s,
            replay_cpu_ms=1000 * again.cpu_s / answered if owned else None,
        )


@asynccontextmanager
async def open_player(
    deployment: Deployment, run: BenchRun, in_flight: int, *, admission: bool = True
) -> AsyncIterator[Player]:
    """Start the hosts of a player. Raises `HostError`, `ServingError`.

    Args:
        admission: queue conversations without room in the cache, if the deployment's options ask for it.
    """
    async with (
        run.hosts(in_flight) as pool,
        deployment.client(run.record, admission=admission) as model,
        deployment.endpoint.client(REQUEST_TIMEOUT_S) as http,
    ):
        yield Player(deployment, run, in_flight, admission, model, pool, http)


@dataclass(frozen=True)
class TokenStream:
    """One episode as its engine saw it.

    Attributes:
        prompt: token ids of the first prompt.
        answers: ids of each answer.
        replies: ids that followed each answer; none after the last.
        most_tokens: limit of an answer.
        options: what each request carried besides prompt and length.
        replica: the replica that it was bound to, where there are several.
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

    It samples answers under the same grammars; the recorded replies follow them, so that the cache can give
    as much as it gave to the rollout.

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
        """Send the requests of all episodes at once; return the output tokens. Raises `RequestFailed`."""
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
        """Return one answer's token ids."""
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
