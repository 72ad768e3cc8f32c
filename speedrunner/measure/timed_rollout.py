"""A rollout that fits into a given time, with what client, server and GPUs use for it."""

from __future__ import annotations

import time

import msgspec

from serving.deployment import Deployment
from serving.model import Model
from serving.options import REQUEST_TIMEOUT_S
from speedrunner.hosts.host_pool import HostPool
from speedrunner.measure.bench_rollout import TokenStream, ratio_target, replay
from speedrunner.measure.measurement import Figure, Measurement, Status, Table, within
from speedrunner.measure.played_episodes import BenchRun, bench_run
from speedrunner.measure.resources import Resources
from speedrunner.results.ledger import token_line
from speedrunner.runs.setup import Setup

LEAST_CALLS = 2
"""Requests of an episode: with one, no prompt could grow."""


LEAST_JUDGED = 8
"""Requests of an episode from which the ratio has a target. Shorter ones are mostly start."""


class RolloutRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout: as many episodes as are in flight, from their start to their end.

    Attributes:
        server: which server played it.
        calls: most requests of an episode.
        prompt, output: tokens of all requests.
        output_per_s: output tokens per second.
        replay_per_s: the same for the bare replay; `None` if there was none.
        ratio: rollout over bare replay.
        cached: share of the prompt tokens that the prefix cache gave.
        client_ms: CPU ms of this process per turn; environments run in other processes.
        server_ms: CPU ms of the server's process tree per output token.
        server_mb: memory of the server's process tree, in MB.
        gpu_mib: most memory used on its GPUs, in MiB.
        watts: average power of its GPUs.
        joules: energy of its GPUs per 1,000 output tokens.
    """

    server: str
    in_flight: int
    calls: int
    turns: int
    prompt: int
    output: int
    seconds: float
    output_per_s: float
    replay_per_s: float | None
    ratio: float | None
    cached: float
    client_ms: float
    server_ms: float | None
    server_mb: float | None
    gpu_mib: float | None
    watts: float | None
    joules: float | None


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
    "cached share of prompt tokens": "cached:.1%",
    "client: CPU ms per turn": "client_ms:.2f",
    "server: CPU ms per output token": "server_ms:.3f",
    "server: host memory, MB": "server_mb:.0f",
    "GPU memory, MiB": "gpu_mib:.0f",
    "GPU power, W": "watts:.0f",
    "GPU energy per 1,000 output tokens, J": "joules:.0f",
}
"""How people see a `RolloutRow`."""


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
    """Play as many episodes at once as `in_flight`, and replay what was sent.

    Args:
        server: which server it is, for people.
        aim_s: seconds that rollout and replay should take together.
        calls: most requests of an episode; `None`: as many as fit into `aim_s`, by a short rollout before.
        replayed: whether the bare replay follows.

    Returns one row in table `rollouts`, and `calls` among the facts.

    Raises `ServingError`, `HostError`, `StorageError`, `RunStopped`.
    """
    owned, card = deployment.server, deployment.card
    with bench_run(setup, calls) as run:
        async with (
            run.hosts(in_flight) as pool,
            deployment.client(run.record) as model,
            deployment.endpoint.client(REQUEST_TIMEOUT_S) as http,
        ):
            await pool.ready()
            prefix = await run.warm(model)
            most = card.role("actor").calls(setup.env.limits.llm_calls)
            if calls is None:
                calls = await _fitting_calls(run, model, pool, in_flight, aim_s / 2, most, status)
            run.calls = calls = min(calls, most)
            told = within(status, f"{in_flight} episodes of at most {calls} requests")
            async with Resources(owned.pid if owned else None, card.gpus_of_a_node if owned else 0) as used:
                played = await run.play(model, pool, in_flight, told)
            replay_per_s = None
            if replayed:
                told("their bare replay")
                streams = [TokenStream.of(each) for each in played]
                replay_per_s, _ = await replay(deployment, http, streams, prefix)
    line = token_line(row for each in played for row in each.rows)
    turns = sum(len(each.trajectory.turns) for each in played)
    output = sum(each.trajectory.usage.completion for each in played)
    prompt = int(line.tokens.cached + line.tokens.computed)
    per_s = output / used.seconds
    row = RolloutRow(
        server=server,
        in_flight=in_flight,
        calls=calls,
        turns=turns,
        prompt=prompt,
        output=output,
        seconds=used.seconds,
        output_per_s=per_s,
        replay_per_s=replay_per_s,
        ratio=per_s / replay_per_s if replay_per_s else None,
        cached=line.tokens.cached / prompt,
        client_ms=1000 * used.client_cpu_s / turns,
        server_ms=None if used.server_cpu_s is None else 1000 * used.server_cpu_s / output,
        server_mb=used.server_mb,
        gpu_mib=used.gpu_mib,
        watts=used.watts,
        joules=None if used.watts is None else 1000 * used.watts * used.seconds / output,
    )
    found = Measurement(
        f"{card.name}, {server}: {in_flight} episodes in flight",
        tables=[Table("rollouts", [row], ROLLOUT_COLUMNS, turned=True)],
        facts={"calls": calls, "in_flight": in_flight},
    )
    if replayed:
        name = f"rollout over bare replay, {in_flight} in flight"
        target = ratio_target(card) if calls >= LEAST_JUDGED else None
        found.figures = [Figure(name, row.ratio, at_least=target, form=".3f")]
    return found


async def _fitting_calls(
    run: BenchRun, model: Model, pool: HostPool, in_flight: int, seconds: float, most: int, status: Status
) -> int:
    """Return how many requests of each episode fit into some seconds, by what one of each takes now."""
    told = within(status, f"one request of each of {in_flight} episodes")
    run.calls = 1
    began = time.monotonic()
    await run.play(model, pool, in_flight, told)
    return min(max(int(seconds / (time.monotonic() - began)), LEAST_CALLS), most)
