"""Costs of episodes in flight on the client's machine: `python -m tests.bench scaling` and `job`.

The engine is simulated (`simulated_engine`); client, workers, sandboxes, environments and records are real.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import psutil
from rich.console import Console

from envs import splits
from serving.engine.cache_config import CacheConfig
from serving.engine.endpoint import Endpoint
from serving.engine.metrics import read_metrics
from serving.model_config import ModelConfig
from serving.sizing import cache_on, fit
from serving.tokens.tools import ToolCall
from serving.weights import prepare
from speedrunner.bench import resources
from speedrunner.bench.engine import completions_api, open_engine, playing_setup
from speedrunner.bench.episodes import bench_run
from speedrunner.bench.measurement import Measurement, Table, columns
from speedrunner.bench.resources import Resources
from speedrunner.bench.rollouts import open_player
from speedrunner.config.compose import compose
from speedrunner.config.console import Status
from speedrunner.config.named import actor_model_config
from speedrunner.config.schema import InvalidConfig
from speedrunner.experiments.grid import grid_of
from speedrunner.experiments.sweep import sweep
from speedrunner.experiments.sweep_members import members
from speedrunner.runs.shutdown import Shutdown
from speedrunner.store.records import Module
from speedrunner.store.run_data import load
from speedrunner.workers.available_memory import MB
from speedrunner.workers.worker_pool import WorkerPool
from tests.bench.engine_process import engine_process
from tests.bench.simulated_engine import EngineSpec
from tests.bench.workers import OPTIONS
from tests.gpu_kinds import GPUS

BANDWIDTH_SHARE, BYTES_PER_S = 0.5, 4.8e12
"""Assumption: a decoding step of an H200 reads all weights at this share of its memory bandwidth."""

COMPUTE_SHARE, OPERATIONS_PER_S = 0.4, 990e12
"""Assumption: prefill reaches this share of an H200's bfloat16 operations, two for each weight and token."""

WAIT = {"babyai": "turn_left()", "crafter": "noop()", "scienceworld": "wait()"}
"""An action of each environment that is always possible."""

CALL_LIMIT_S = 300.0

ANSWER_TOKENS = 200
"""Tokens of an answer, thinking included: the assumption of docs/replicate.md."""

EPISODES, ACTIONS = 10, 41
"""Episodes and actions of each, from which the cost of an action in a skill is measured."""


def simulated_h200(model_config: ModelConfig, replicas: int, speed: float = 1.0) -> EngineSpec:
    """Return an engine with H200 replicas of a model: its cache by arithmetic, its speed by assumption.

    Args:
        speed: factor of all rates, to load the client as many more replicas would.

    Raises `InvalidConfig` for models that are not served from GPUs of a known shape.
    """
    gpus = [GPUS["H200"]] * model_config.gpus
    capacity = cache_on(model_config, gpus)
    if capacity is None or model_config.tool_format is None:
        raise InvalidConfig(f"model={model_config.name}: choose one with GPUs, such as qwen3.5-27b")
    fitted = fit(model_config, gpus)
    unit = model_config.match_unit or capacity.block_size
    sequences = fitted.server.flags["max-num-seqs"]
    assert isinstance(sequences, int)
    weights = capacity.weights / model_config.gpus
    return EngineSpec(
        model=model_config.name,
        context=fitted.context,
        folder=prepare(model_config, lambda line: None),
        tool_format=model_config.tool_format,
        cache=CacheConfig(capacity.block_size, capacity.num_gpu_blocks, True, unit, capacity.hybrid),
        replicas=replicas,
        sequences=sequences,
        step_s=weights / (BANDWIDTH_SHARE * BYTES_PER_S) / speed,
        prefill_per_s=COMPUTE_SHARE * OPERATIONS_PER_S / weights * speed,  # 2 operations, 2 bytes a weight
        answer_tokens=ANSWER_TOKENS,
    )


def simulated_engine(spec: EngineSpec) -> AbstractAsyncContextManager[tuple[Endpoint, int]]:
    """Run an engine in a separate process. Yields its address and process id."""
    return engine_process((sys.executable, "-m", "tests.bench.simulated_engine"), spec)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What some requests took.

    Attributes:
        requests: of all episodes.
        requests_per_s: of all episodes.
        client_ms: CPU time of the main process per request.
        worker_ms: CPU time of workers and sandboxes per request, the start of each episode included.
        engine_ms: CPU time of the simulated engine per request.
        client_share: CPU time of the main process per second.
        busy_share: time per second in which its event loop ran or waited for a core; 100 %: the client is the
            bottleneck, on this machine with its other work.
        client_mib: memory of the main process, at the end of a job or before the episodes of a level.
        engine_s: seconds of a request in the engine.
        extra_s: seconds of a request that the client adds to the engine's.
    """

    requests: int
    requests_per_s: float
    client_ms: float
    worker_ms: float
    engine_ms: float
    client_share: float
    busy_share: float
    client_mib: float
    engine_s: float
    extra_s: float


class Level(Load, frozen=True, kw_only=True):
    """A number of episodes of one environment in flight.

    Attributes:
        episode_mib: what each episode adds to the main process's memory, with its record.
        worker_mib: memory of a worker with its sandboxes at the end; shared pages count once.
    """

    env: str
    in_flight: int
    episode_mib: float
    worker_mib: float


class Job(Load, frozen=True, kw_only=True):
    """A sweep in one process, as a job plays it; the start of the workers counts as theirs.

    Attributes:
        runs, episodes, sleeps: those that were played.
    """

    runs: int
    episodes: int
    sleeps: int


LOAD = (
    *("requests", "requests_per_s:.1f", "client_ms:.2f", "worker_ms:.2f", "engine_ms:.2f"),
    *("client_share:.0%", "busy_share:.0%", "client_mib:.0f", "engine_s:.2f", "extra_s:.3f"),
)
"""Columns of `Load`."""


class ActionCost(msgspec.Struct, frozen=True):
    """CPU milliseconds of an environment's worker and sandbox: for the start of an episode, and for each
    action within a skill."""

    env: str
    start_ms: float
    action_ms: float


async def measure_job(
    what: Sequence[str], at_once: int, replicas: int, speed: float, status: Status
) -> Measurement:
    """Play a sweep against a simulated engine, in this process.

    Args:
        what: the runs, as for `speedrunner sweep`, with their model.
        at_once: episodes at the same time, over all runs.
        replicas: of the model, each on an H200.
        speed: see `simulated_h200`.

    Raises the errors of `measure_scaling`, and of `sweep`.
    """
    first = grid_of(what).runs()[0].config
    spec = simulated_h200(completions_api(actor_model_config(first)), replicas, speed)
    with tempfile.TemporaryDirectory(prefix="speedrunner-bench-") as folder:
        async with simulated_engine(spec) as (endpoint, pid):
            given = [*what, f"serving.url={endpoint}", f"model.replicas={replicas}"]
            runs = members(grid_of(given, Path(folder)).runs())
            status(f"{len(runs)} runs")
            console = Console(file=io.StringIO())
            loop_s = _loop_seconds()
            async with Resources(pid) as used:
                result = await sweep(runs, console, Shutdown(status), at_once)
            loop_s = _loop_seconds() - loop_s
            engine_s = await _engine_seconds(endpoint)
            client_mib = _memory_mib(psutil.Process())
        played = [load(each.path) for each in runs]
        rows = [row for each in played for row in each.requests]
        seconds = sum(row.seconds for row in rows)
        job = Job(
            runs=len(runs) - len(result.failures),
            episodes=sum(len(each.episodes) for each in played),
            sleeps=sum(len(each.sleeps) for each in played),
            client_mib=client_mib,
            **_load_fields(used, loop_s, len(rows), engine_s, seconds),
        )
    shown = columns("runs", "episodes", "sleeps", *LOAD)
    return Measurement(
        f"{' '.join(what)}, {at_once} in flight, {replicas} simulated H200 at {speed:g} times their speed",
        tables=[Table("job", [job], shown, turned=True)],
        facts={"engine": spec, "load": os.getloadavg()[0]},
        notes=[f"{path}: {why}" for path, why in result.failures.items()],
    )


async def measure_scaling(
    overrides: Sequence[str],
    envs: Sequence[str],
    in_flight: Sequence[int],
    calls: int,
    replicas: int,
    speed: float,
    status: Status,
) -> Measurement:
    """Play episodes of each environment against a simulated engine, one number in flight after another.

    Args:
        overrides: name the model, and the environments' options.
        calls: requests of each episode.
        replicas: of the model, each on an H200.
        speed: see `simulated_h200`.

    Raises `InvalidConfig`, `InvalidModelConfig`, `ServingError`, `WorkerError`, `StorageError`, `RunStopped`.
    """
    model_config = completions_api(actor_model_config(compose(list(overrides))))
    spec = simulated_h200(model_config, replicas, speed)
    levels: list[Level] = []
    async with simulated_engine(spec) as (endpoint, pid):
        for env in envs:
            for many in in_flight:
                status(f"{many} episodes of {env}")
                options = [f"env.{name}={value}" for name, value in OPTIONS.get(env, {}).items()]
                given = f"env={env}", *options, "method=react", *overrides, f"model.replicas={replicas}"
                attached = f"serving.url={endpoint}", f"run.in_flight={many}"
                levels.append(await _measure_level([*given, *attached], calls, pid, status))
    actions = [await _measure_actions(env) for env in envs]
    shown = columns("env", "in_flight", *LOAD, "episode_mib:.2f", "worker_mib:.1f")
    return Measurement(
        f"{spec.model} on {replicas} simulated H200 at {speed:g} times their speed, {calls} calls an episode",
        tables=[
            Table("levels", levels, shown),
            Table("actions", actions, columns("env", "start_ms:.1f", "action_ms:.2f")),
        ],
        facts={"engine": spec, "load": os.getloadavg()[0]},
    )


async def _measure_level(overrides: Sequence[str], calls: int, engine_pid: int, status: Status) -> Level:
    setup = playing_setup(overrides)
    many = setup.config.run.in_flight
    with bench_run(setup, calls) as run:
        async with (
            open_engine(setup.model_config, setup.config, status) as deployment,
            open_player(deployment, run, many) as player,
        ):
            await player.pool.ready()
            await run.warm(player.model)
            run.calls = 1  # loads what only the first episode of a worker loads
            await run.play(player.model, player.pool, many, lambda line: None)
            run.calls = calls
            before, before_mib = await _engine_seconds(deployment.endpoint), _memory_mib(psutil.Process())
            loop_s = _loop_seconds()
            async with Resources(engine_pid) as used:
                played = await run.play(player.model, player.pool, many, status)
            loop_s = _loop_seconds() - loop_s
            after, after_mib = await _engine_seconds(deployment.endpoint), _memory_mib(psutil.Process())
            workers = [each for each in resources.below() if each.pid != engine_pid]
            worker_mib = _memory_mib(*workers) / many
    turns = [turn for each in played for turn in each.trajectory.turns]
    seconds = sum(turn.seconds - turn.queued_s for turn in turns)
    return Level(
        env=setup.config.env.name,
        in_flight=many,
        client_mib=before_mib,
        episode_mib=(after_mib - before_mib) / many,
        worker_mib=worker_mib,
        **_load_fields(used, loop_s, len(turns), after - before, seconds),
    )


def _load_fields(
    used: Resources, loop_s: float, requests: int, engine_s: float, client_s: float
) -> dict[str, Any]:
    """Return the fields of `Load`, except for `client_mib`.

    Args:
        loop_s: seconds in which the event loop ran or waited for a core.
        engine_s, client_s: seconds of all requests, as the engine and as the client measured them.
    """
    assert used.server_cpu_s is not None
    workers_s = used.cpu_s - used.client_cpu_s - used.server_cpu_s
    return {
        "requests": requests,
        "requests_per_s": requests / used.seconds,
        "client_ms": 1000 * used.client_cpu_s / requests,
        "worker_ms": 1000 * workers_s / requests,
        "engine_ms": 1000 * used.server_cpu_s / requests,
        "client_share": used.client_cpu_s / used.seconds,
        "busy_share": loop_s / used.seconds,
        "engine_s": engine_s / requests,
        "extra_s": (client_s - engine_s) / requests,
    }


def _loop_seconds() -> float:
    """Return the seconds in which this process's first thread, the event loop, ran or waited for a core."""
    run, waited, _ = Path("/proc/self/schedstat").read_text().split()
    return (int(run) + int(waited)) / 1e9


def _memory_mib(*processes: psutil.Process) -> float:
    return resources.memory_mb(processes) * MB / 2**20


async def _engine_seconds(endpoint: Endpoint) -> float:
    """Return the seconds of all requests in the engine so far."""
    name = "e2e_request_latency_seconds_sum"
    return (await read_metrics(endpoint)).sums(name)[name]


async def _measure_actions(env: str) -> ActionCost:
    options = OPTIONS.get(env, {})
    task = splits(env, **options).test[0]
    async with WorkerPool(1, env, options) as pool:
        await pool.ready()
        async with pool.worker() as worker:

            async def cost(actions: int) -> float:
                """Return the CPU seconds of an episode with one call of a skill with so many actions."""
                source = f"def act():\n    for _ in range({actions}):\n        {WAIT[env]}\n    return None"
                before = resources.cpu_s(resources.below())
                for _ in range(EPISODES):
                    await worker.reset(task, Module(source, ("act",)), None)
                    await worker.execute(ToolCall("act", {}), CALL_LIMIT_S)
                return (resources.cpu_s(resources.below()) - before) / EPISODES

            await cost(1)  # loads what only the first episode loads
            short_s, long_s = await cost(1), await cost(ACTIONS)
            return ActionCost(env, 1000 * short_s, 1000 * (long_s - short_s) / (ACTIONS - 1))
