"""Compute the cores and the memory that a job needs. docs/scaling.md has the measurements and the formula.

CPU times were measured with `python -m tests.bench scaling --calls 100 --speed 16`, and are rounded up. The
servers' share, the shortest request and the actions of a request are assumptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from serving.model_config import ModelConfig
from speedrunner.experiments.sweep import AHEAD
from speedrunner.experiments.sweep_members import Member
from speedrunner.experiments.sweep_outline import estimate
from speedrunner.workers.available_memory import MB
from speedrunner.workers.worker_pool import worker_mb

CLIENT_MS = 3.5
"""CPU ms of the main process for each request, with at least 8 episodes in flight."""

WORKER_MS = {"babyai": 0.6, "crafter": 0.5, "scienceworld": 19.0}
ACTION_MS = {"babyai": 0.25, "crafter": 0.1, "scienceworld": 5.0}
"""CPU ms of a worker with its sandbox: for each request, and for each action of a skill. Other environments
count as the most expensive of these."""

ACTIONS = 10
"""Assumption: actions of the skills that one request calls, on average."""

REQUEST_S = 1.0
"""Assumption: seconds of the shortest request, for runs without a forecast. By the arithmetic of
docs/replicate.md, 200 tokens take 1.0 s with `qwen3.5-4b` on an H100."""

BUSY = 0.5
"""Share of their time that cores may work for episodes, so that these seldom wait for a core."""

SERVER_CORES, GPU_CORES = 2, 1
SERVER_GB, GPU_GB = 8, 24
"""Assumption: cores and memory (GB of 2^30 bytes) of a server, and of each of its GPUs. vLLM has a process
for its API, one for the engine, and one for each GPU."""

CLIENT_GB = 2
"""Memory of the main process, in GB of 2^30 bytes. 256 episodes of 30 requests took 0.4."""

GB = 2**30

LEAST_CORES = 2
"""Cores for episodes: the main process has one to itself."""


class JobSize(msgspec.Struct, frozen=True):
    """The cores and the memory that a job needs on each of its nodes.

    Attributes:
        cpus: cores.
        memory_gb: memory in GB (2^30 bytes).
        client_share: share of its time that the main process, which can use one core, is busy.
    """

    cpus: int
    memory_gb: int
    client_share: float


class Servers(NamedTuple):
    """Servers of a job: their nodes, how many run at the same time, and their GPUs on each node."""

    nodes: int
    number: int
    gpus: int


def models_to_serve(member: Member) -> list[ModelConfig]:
    """Return the models with servers that a run starts, each once."""
    return [
        *{
            model_config.name: model_config
            for model_config, options in member.setup.services
            if model_config.base_url is None and options.url is None
        }.values()
    ]


def servers_of(part: Sequence[Member]) -> Servers:
    """Return what the servers of some runs need; runs with different servers follow one another."""
    needs = [models_to_serve(each) for each in part]
    return Servers(
        nodes=max((each.nodes for models in needs for each in models), default=1),
        number=max(map(len, needs)),
        gpus=max(sum(each.gpus_of_a_node for each in models) for models in needs),
    )


def job_size(parts: Sequence[Sequence[Member]], at_once: int) -> JobSize:
    """Return the cores and the memory that are enough for each of some jobs.

    Requests per second are those of the runs' forecasts, with as many episodes at the same time as their
    pilots played. Without forecasts, they are the most that episodes can send. They are never more than the
    main process can send with one core.

    Args:
        parts: the runs of each job.
        at_once: episodes of a job at the same time.

    Raises:
        StorageError: forecasts cannot be read.
    """
    sizes = [_size_part(part, at_once) for part in parts]
    return JobSize(
        cpus=max(each.cpus for each in sizes),
        memory_gb=max(each.memory_gb for each in sizes),
        client_share=max(each.client_share for each in sizes),
    )


def _size_part(part: Sequence[Member], at_once: int) -> JobSize:
    servers = servers_of(part)
    rate = min(1000 / CLIENT_MS, estimate(part).requests_per_s or at_once / REQUEST_S)
    busy = rate * (CLIENT_MS + max(_worker_ms(each.setup.config.env.name) for each in part)) / 1000
    runs_gb = sum(_open_bytes(part, at_once)) / GB
    return JobSize(
        cpus=max(ceil(busy / BUSY), LEAST_CORES) + servers.number * SERVER_CORES + servers.gpus * GPU_CORES,
        memory_gb=ceil(runs_gb) + CLIENT_GB + servers.number * SERVER_GB + servers.gpus * GPU_GB,
        client_share=rate * CLIENT_MS / 1000,
    )


def _worker_ms(env: str) -> float:
    """Return the CPU ms of a worker for each request."""
    own = WORKER_MS.get(env, max(WORKER_MS.values()))
    return own + ACTIONS * ACTION_MS.get(env, max(ACTION_MS.values()))


def _open_bytes(part: Sequence[Member], at_once: int) -> Iterable[float]:
    """Yield the bytes of each run's workers and inducer, for as many runs as are open at the same time."""
    configs = [each.setup.config for each in part]
    wanted = 0
    # Those with the largest workers may be open together.
    for config in sorted(configs, key=lambda config: worker_mb(config.env.name), reverse=True):
        if wanted >= AHEAD * at_once:
            return
        wanted += config.run.in_flight
        yield config.run.in_flight * worker_mb(config.env.name) * MB + config.sandbox.memory_mb * 2**20
