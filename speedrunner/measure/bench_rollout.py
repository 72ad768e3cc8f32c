"""What our client costs beside a bare load generator, and by itself: `speedrunner bench rollout`."""

from __future__ import annotations

import secrets
import statistics

import msgspec

from serving.cards import ModelCard
from speedrunner.measure.client_alone import measure_client
from speedrunner.measure.engine import opened
from speedrunner.measure.measurement import Figure, Measurement, Status, Table, columns
from speedrunner.measure.played_episodes import BenchRun, bench_run
from speedrunner.measure.processes import Leftovers, Stopwatch
from speedrunner.measure.replay import TIMEOUT_S, BareClient, TokenStream
from speedrunner.runs.setup import Setup

RATIO_TARGET, GPU_RATIO_TARGET = 0.90, 0.95


class Pair(msgspec.Struct, frozen=True, kw_only=True):
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

    Raises:
        ServingError, HostError, StorageError, RunStopped: something failed.
    """
    leftovers = Leftovers()
    with bench_run(setup) as run:
        compared, streams = await compare(setup, in_flight, pairs, status, run)
        answers = [ids for each in streams for ids in each.answers]
        client = await measure_client(setup, client_in_flight, answers, status, run)
    left = await leftovers.found()
    return _measurement(setup.card, in_flight, compared, client, left)


async def compare(
    setup: Setup, in_flight: int, pairs: int, status: Status, run: BenchRun
) -> tuple[list[Pair], list[TokenStream]]:
    """Play as many episodes at once as `in_flight`, and replay what was sent, `pairs` times.

    Returns:
        The figures, and what was sent last.

    Raises:
        ServingError, HostError, StorageError, RunStopped: something failed.
    """
    measured: list[Pair] = []
    streams: list[TokenStream] = []
    async with (
        opened(setup.card, setup.config, status) as deployment,
        run.hosts(in_flight) as pool,
        deployment.client(run.record) as model,
        deployment.endpoint.client(TIMEOUT_S) as http,
    ):
        for number in range(1, pairs + 1):
            so_far = ", ".join(f"{each.ratio:.3f}" for each in measured) or "none"
            status(f"pair {number} of {pairs}, a rollout and its bare replay; ratios so far: {so_far}")
            prefix = await run.warm(model)
            await pool.ready()
            watch = Stopwatch()
            played = await run.play(model, pool, in_flight)
            ours = watch.per_token(sum(each.trajectory.usage.completion for each in played))
            streams = [TokenStream.of(each) for each in played]
            bare_client = BareClient(deployment, http, secrets.token_hex(8))
            await bare_client.warm(streams, prefix)
            watch = Stopwatch()
            bare = watch.per_token(await bare_client.play(streams))
            pair = Pair(pair=number, our_client=ours[0], bare_replay=bare[0], ratio=ours[0] / bare[0])
            if deployment.server is not None:
                pair = msgspec.structs.replace(
                    pair, our_cpu_ms=ours[1], bare_cpu_ms=bare[1], cpu_ratio=bare[1] / ours[1]
                )
            measured.append(pair)
    return measured, streams


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
