"""The client's cost compared with a bare load generator, and alone: `speedrunner bench rollout`.

`bench gpu` measures one rollout of a given length with the same player.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import psutil

from serving.admission import Replica
from serving.deployment import Deployment
from serving.engine.client import Engine
from serving.engine.metrics import CacheConfig
from serving.meter import Meter
from serving.model import Model
from serving.model_card import ModelCard
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import prepare
from speedrunner.bench.engine import canned_engine, opened
from speedrunner.bench.episodes import BenchRun, bench_run
from speedrunner.bench.measurement import Figure, Measurement, Table
from speedrunner.bench.resources import Leftovers, below, memory_mb
from speedrunner.bench.rollouts import Player, Rollout, open_player
from speedrunner.console import Status, within
from speedrunner.runs.setup import Setup

RATIO_TARGET, GPU_RATIO_TARGET = 0.90, 0.95
TURNS_TARGET = 250.0

LEAST_CALLS = 2
"""Minimum requests of an episode: with one, no prompt could grow."""

LEAST_JUDGED = 8
"""Requests of an episode from which the ratio has a target. Shorter ones are mostly start."""

PAIR_COLUMNS = {
    "pair": "server",
    "our client": "output_per_s:.0f",
    "bare replay": "replay_per_s:.0f",
    "ratio": "ratio:.3f",
    "our cpu ms": "cpu_ms",
    "bare cpu ms": "replay_cpu_ms",
}

ROLLOUT_COLUMNS = {
    "server": "server",
    "in flight": "in_flight",
    "most requests of an episode": "calls",
    "turns": "turns",
    "prompt tokens": "prompt",
    "output tokens": "output",
    "seconds": "seconds:.1f",
    "output tokens/s": "output_per_s:.0f",
    "output tokens/s, bare replay": "replay_per_s:.0f",
    "rollout over bare replay": "ratio:.3f",
    "cached share of prompt tokens": "hit_rate:.1%",
    "client: CPU ms per turn": "client_ms:.2f",
    "server: CPU ms per output token": "server_ms:.3f",
    "server: host memory, MB": "server_mb:.0f",
    "GPU memory, MiB": "gpu_mib:.0f",
    "GPU power, W": "watts:.0f",
    "GPU energy per 1,000 output tokens, J": "joules:.0f",
}


async def measure_rollout(
    setup: Setup, in_flight: int, pairs: int, client_in_flight: int, status: Status
) -> Measurement:
    """Compare rollouts with bare replays, then measure the client alone with the answers of the last one.

    Raises `ServingError`, `HostError`, `StorageError`, `RunStopped`.
    """
    leftovers = Leftovers()
    rollouts: list[Rollout] = []
    with bench_run(setup) as run:
        async with (
            opened(setup.card, setup.config, status) as deployment,
            open_player(deployment, run, in_flight) as player,
        ):
            for number in range(1, pairs + 1):
                so_far = ", ".join(f"{each.ratio:.3f}" for each in rollouts) or "none"
                reported = within(status, f"ratios so far: {so_far}; pair {number} of {pairs}")
                rollouts.append(await player.play(in_flight, reported, server=str(number), replayed=True))
        answers = [ids for each in player.streams for ids in each.answers]
        client = await measure_client(setup, client_in_flight, answers, status, run)
    return _measurement(setup.card, in_flight, rollouts, client, await leftovers.found())


def ratio_target(card: ModelCard) -> float:
    """Return the least ratio to the bare replay. On a CPU, both share the cores with the engine."""
    return GPU_RATIO_TARGET if card.gpus else RATIO_TARGET


def _measurement(
    card: ModelCard, in_flight: int, pairs: list[Rollout], client: list[Figure], left: list[str]
) -> Measurement:
    ratio = statistics.median(each.ratio for each in pairs if each.ratio is not None)
    cpu_ratios = [each.replay_cpu_ms / each.cpu_ms for each in pairs if each.replay_cpu_ms and each.cpu_ms]
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
        tables=[Table("pairs", pairs, PAIR_COLUMNS)],
        facts={"model": card.name, "in_flight": in_flight, "left_behind": left},
        notes=[f"LEFT BEHIND: {each}" for each in left],
    )


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


async def measure_timed_rollout(
    deployment: Deployment,
    setup: Setup,
    in_flight: int,
    status: Status,
    *,
    server: str,
    aim_s: float,
    calls: int | None = None,
    replayed: bool = True,
) -> Measurement:
    """Play one rollout that fits into a given time, and replay its requests.

    Args:
        server: which server it is, for people.
        aim_s: seconds that rollout and replay should take together.
        calls: maximum requests of an episode; `None`: as many as fit into `aim_s`, by a short rollout before.
        replayed: whether the bare replay follows.

    Returns one row in table `rollouts`, and `calls` among the facts.

    Raises `ServingError`, `HostError`, `StorageError`, `RunStopped`.
    """
    card = deployment.card
    with bench_run(setup, calls) as run:
        async with open_player(deployment, run, in_flight) as player:
            most = card.role("actor").calls(setup.env.limits.llm_calls)
            if calls is None:
                calls = await _fitting_calls(player, aim_s / 2, most, status)
            run.calls = calls = min(calls, most)
            reported = within(status, f"{in_flight} episodes of at most {calls} requests")
            rollout = await player.play(in_flight, reported, server=server, replayed=replayed)
    found = Measurement(
        f"{card.name}, {server}: {in_flight} episodes in flight",
        tables=[Table("rollouts", [rollout], ROLLOUT_COLUMNS, turned=True)],
        facts={"calls": calls, "in_flight": in_flight},
    )
    if replayed:
        name = f"rollout over bare replay, {in_flight} in flight"
        target = ratio_target(card) if calls >= LEAST_JUDGED else None
        found.figures = [Figure(name, rollout.ratio, at_least=target, form=".3f")]
    return found


async def _fitting_calls(player: Player, seconds: float, most: int, status: Status) -> int:
    """Return how many requests of each episode fit into some seconds, by the time of one of each."""
    player.run.calls = 1
    reported = within(status, f"one request of each of {player.in_flight} episodes")
    first = await player.play(player.in_flight, reported)
    return min(max(int(seconds / first.seconds), LEAST_CALLS), most)
