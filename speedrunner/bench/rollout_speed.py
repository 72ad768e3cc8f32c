"""Rollouts compared with a bare replay: `speedrunner bench rollout`, and steps of `bench gpu`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from serving.deployment import Deployment
from serving.model_config import ModelConfig
from speedrunner.bench.engine import open_engine
from speedrunner.bench.measurement import Figure, Measurement, Table
from speedrunner.bench.rollouts import Rollout, bench_run, open_player
from speedrunner.config.console import Status, prefix_status
from speedrunner.runs.setup import Setup

RATIO_TARGET, GPU_RATIO_TARGET = 0.90, 0.95

LEAST_CALLS = 2
"""Minimum requests of an episode: with only one, no prompt could grow."""

LEAST_JUDGED = 8
"""Minimum requests of an episode for a target of the ratio. Shorter episodes are mostly start."""

ROLLOUT_COLUMNS = {
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
    "cached tokens, share of the maximum": "of_maximum:.2%",
    "client: CPU ms per turn": "client_ms:.2f",
}


async def measure_rollout(setup: Setup, in_flight: int, pairs: int, status: Status) -> Measurement:
    """Play rollouts of full length, each followed by its bare replay.

    Raises `ServingError`, `WorkerError`, `StorageError`, `RunStopped`.
    """
    rollouts: list[Rollout] = []
    with bench_run(setup) as run:
        async with (
            open_engine(setup.model_config, setup.config, status) as deployment,
            open_player(deployment, run, in_flight) as player,
        ):
            for number in range(1, pairs + 1):
                so_far = ", ".join(f"{each.ratio:.3f}" for each in rollouts) or "none"
                reported = prefix_status(status, f"ratios so far: {so_far}; pair {number} of {pairs}")
                rollouts.append(await player.play(in_flight, reported, replayed=True))
    return describe_rollouts(setup.model_config, rollouts)


async def measure_timed_rollout(
    deployment: Deployment, setup: Setup, in_flight: int, aim_s: float, status: Status
) -> Measurement:
    """Play one rollout that fits into a given time, and replay its requests.

    Args:
        aim_s: seconds that rollout and replay should take together. A short rollout shows how many requests
            of an episode fit into them.

    Raises `ServingError`, `WorkerError`, `StorageError`, `RunStopped`.
    """
    with bench_run(setup) as run:
        async with open_player(deployment, run, in_flight) as player:
            most, run.calls = run.calls, 1
            reported = prefix_status(status, f"one request of each of {in_flight} episodes")
            first = await player.play(in_flight, reported)
            run.calls = min(max(int(aim_s / 2 / first.seconds), LEAST_CALLS), most)
            reported = prefix_status(status, f"{in_flight} episodes of at most {run.calls} requests")
            rollout = await player.play(in_flight, reported, replayed=True)
    return describe_rollouts(deployment.model_config, [rollout])


def describe_rollouts(model_config: ModelConfig, rollouts: Sequence[Rollout]) -> Measurement:
    """Return rollouts of one kind as a table, one column each, with the median of their ratios.

    The ratio has a target if episodes are long enough: 0.95 on GPUs, 0.90 on a CPU, which the client shares
    with the engine.
    """
    calls, in_flight = rollouts[0].calls, rollouts[0].in_flight
    least = GPU_RATIO_TARGET if model_config.gpus else RATIO_TARGET
    target = least if calls >= LEAST_JUDGED else None
    ratios = [each.ratio for each in rollouts if each.ratio is not None]
    which = "rollout" if len(ratios) == 1 else f"median of {len(ratios)} rollouts"
    name = f"{which} over bare replay, {in_flight} in flight"
    return Measurement(
        f"{model_config.name}: {in_flight} episodes in flight",
        figures=[Figure(name, statistics.median(ratios), at_least=target, form=".3f")],
        tables=[Table("rollouts", rollouts, ROLLOUT_COLUMNS, turned=True)],
        facts={"model": model_config.name, "calls": calls, "in_flight": in_flight},
    )
