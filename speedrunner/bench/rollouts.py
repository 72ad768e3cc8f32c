"""Rollouts: episodes played on an engine, as one typed row each, with a bare replay on request.

`bench rollout`, `bench cache` and `bench gpu` play them in different sizes and print different columns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from serving.deployment import Deployment
from serving.engine.http import HttpClient
from serving.engine.metrics import read_metrics
from serving.model import Model
from serving.options import REQUEST_TIMEOUT_S
from speedrunner.bench.bare_replay import BareClient, TokenStream
from speedrunner.bench.episodes import BenchRun
from speedrunner.bench.resources import Resources
from speedrunner.config.console import Status
from speedrunner.results.ledger import token_line
from speedrunner.workers.worker_pool import WorkerPool

PREEMPTIONS = "num_preemptions_total"


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout. Tokens are sums over all requests; `None`: not measured.

    Attributes:
        server: description of the server, for users.
        admission: whether conversations without room in the cache were queued.
        calls: maximum requests of an episode.
        prompt, output: tokens of all requests.
        output_per_s: output tokens per second.
        replay_per_s: the same for the bare replay.
        ratio: rollout over bare replay, in output tokens per second.
        cpu_ratio: the same by output tokens per CPU second, which other work on the machine disturbs less.
        cached, cacheable: prompt tokens from the prefix cache, and the most that it could provide.
        of_maximum: `cached` over `cacheable`.
        hit_rate: `cached` over `prompt`.
        queued: requests before which the episode was queued.
        preemptions: requests that the engine stopped for lack of blocks, and computed again.
        cpu_ms: CPU ms per output token of all processes, including the engine's; `None` if the engine was not
            started here.
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
    calls: int
    turns: int
    prompt: int
    output: int
    seconds: float
    output_per_s: float
    replay_per_s: float | None = None
    ratio: float | None = None
    cpu_ratio: float | None = None
    cached: int
    cacheable: int
    of_maximum: float
    hit_rate: float
    queued: int
    preemptions: int
    cpu_ms: float | None = None
    client_ms: float
    server_ms: float | None = None
    server_mb: float | None = None
    gpu_mib: float | None = None
    watts: float | None = None
    joules: float | None = None
    cache_blocks: int | None = None
    shared_blocks: int | None = None
    own_blocks: float | None = None


@dataclass
class Player:
    """Plays rollouts with a fixed number of episodes in flight. Made by `open_player`."""

    deployment: Deployment
    run: BenchRun
    in_flight: int
    admission: bool
    model: Model
    pool: WorkerPool
    http: HttpClient

    async def play(
        self, episodes: int, status: Status, *, server: str = "", replayed: bool = False
    ) -> Rollout:
        """Play training episodes, and replay their requests on request.

        Raises `ServingError`, `WorkerError`, `StorageError`, `RunStopped`.
        """
        deployment, owned = self.deployment, self.deployment.server
        prefix = await self.run.warm(self.model)
        await self.pool.ready()
        before = await self._preemptions()
        gpus = deployment.model_config.gpus_of_a_node if owned else 0
        async with Resources(owned.pid if owned else None, gpus) as used:
            played = await self.run.play(self.model, self.pool, episodes, status)
        preemptions = await self._preemptions() - before
        line = token_line(row for each in played for row in each.rows)
        prompt, cached = int(line.tokens.cached + line.tokens.computed), int(line.tokens.cached)
        turns = [turn for each in played for turn in each.trajectory.turns]
        output = sum(each.trajectory.usage.completion for each in played)
        measured: dict[str, Any] = {"server_mb": used.server_mb, "gpu_mib": used.gpu_mib}
        if owned:
            measured["cpu_ms"] = 1000 * used.cpu_s / output
        if used.server_cpu_s is not None:
            measured["server_ms"] = 1000 * used.server_cpu_s / output
        if used.watts is not None:
            measured |= {"watts": used.watts, "joules": 1000 * used.watts * used.seconds / output}
        if cache := deployment.replicas[0].cache:
            own = [cache.blocks(len(each.talk.transcript.ids), len(prefix)) for each in played]
            shared = len(prefix) // cache.block_size
            measured |= {"cache_blocks": cache.num_gpu_blocks, "shared_blocks": shared}
            measured["own_blocks"] = sum(own) / len(own)
        output_per_s = output / used.seconds
        if replayed:
            status(f"{output_per_s:.0f} output tokens/s; its bare replay")
            streams, bare = [TokenStream.of(each) for each in played], BareClient(deployment, self.http)
            await bare.warm(streams, prefix)
            async with Resources() as again:
                answered = await bare.play(streams)
            replay_per_s = answered / again.seconds
            measured |= {"replay_per_s": replay_per_s, "ratio": output_per_s / replay_per_s}
            if owned:
                measured["cpu_ratio"] = (again.cpu_s / answered) / (used.cpu_s / output)
        return Rollout(
            server=server,
            in_flight=self.in_flight,
            admission=self.admission,
            episodes=len(played),
            calls=self.run.calls,
            turns=len(turns),
            prompt=prompt,
            output=output,
            seconds=used.seconds,
            output_per_s=output_per_s,
            cached=cached,
            cacheable=line.cacheable,
            of_maximum=line.cache_share or 0.0,
            hit_rate=cached / prompt,
            queued=sum(turn.queued_s > 0 for turn in turns),
            preemptions=preemptions,
            client_ms=1000 * used.client_cpu_s / len(turns),
            **measured,
        )

    async def _preemptions(self) -> int:
        """Return how many requests the engine has stopped for lack of blocks since its start."""
        sums = (await read_metrics(self.deployment.endpoint)).sums(PREEMPTIONS)
        return int(sums.get(PREEMPTIONS, 0))


@asynccontextmanager
async def open_player(
    deployment: Deployment, run: BenchRun, in_flight: int, *, admission: bool = True
) -> AsyncIterator[Player]:
    """Start the workers of a player. Raises `WorkerError`, `ServingError`.

    Args:
        admission: queue conversations without room in the cache, if the deployment's options ask for it.
    """
    async with (
        run.workers(in_flight) as pool,
        deployment.client(run.record, admission=admission) as model,
        deployment.endpoint.client(REQUEST_TIMEOUT_S) as http,
    ):
        yield Player(deployment, run, in_flight, admission, model, pool, http)
