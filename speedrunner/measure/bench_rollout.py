"""What our client costs beside a bare load generator, and by itself: `speedrunner bench rollout`."""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import psutil
import typer

from serving.cards import ModelCard
from speedrunner.cli.command import AsJson, Status
from speedrunner.measure.bench_replay import Recorded, recorded, replay, warm
from speedrunner.measure.client import Client, measure_client
from speedrunner.measure.episodes import BenchRun, RecordingActor, bench_run
from speedrunner.measure.serving import Overrides, bench_deployment, bench_setup, carry_out_in_folder
from speedrunner.runs.setup import Setup
from speedrunner.store.labels import Labels

RATIO_TARGET, GPU_RATIO_TARGET = 0.90, 0.95
TURNS_TARGET = 250.0


class Pair(msgspec.Struct, frozen=True):
    """A rollout through our engine, and its bare replay.

    Attributes:
        ours, replay: output tokens per second.
        ours_cpu_ms, replay_cpu_ms: CPU time per output token of all processes together, the engine's too,
            which depends little on what else the machine does; `None` where the engine is not ours.
    """

    ours: float
    replay: float
    ours_cpu_ms: float | None = None
    replay_cpu_ms: float | None = None

    @property
    def ratio(self) -> float:
        """Ours over the bare ones."""
        return self.ours / self.replay

    @property
    def cpu_ratio(self) -> float | None:
        """What the bare ones take over what ours take."""
        return self.replay_cpu_ms / self.ours_cpu_ms if self.replay_cpu_ms and self.ours_cpu_ms else None


class Lap:
    """Seconds, and CPU seconds of this process and all below it, since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._cpu_s = self._cpu_now()

    def per_token(self, tokens: int) -> tuple[float, float]:
        """Tokens per second, and CPU milliseconds per token."""
        cpu_s = self._cpu_now() - self._cpu_s
        return tokens / (time.monotonic() - self._began), 1000 * cpu_s / tokens

    def _cpu_now(self) -> float:
        total = 0.0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total


class LeftBehind(msgspec.Struct, frozen=True):
    """What was there at the end and not at the beginning."""

    tasks: list[str]
    threads: list[str]
    processes: list[str]

    @property
    def nothing(self) -> bool:
        """Whether all has ended."""
        return not (self.tasks or self.threads or self.processes)


class Result(Client, frozen=True, kw_only=True):
    """What was measured.

    Attributes:
        ratio_to_replay: of output tokens per second, median over the pairs.
        cpu_ratio: of CPU time per output token, likewise.
    """

    model: str
    in_flight: int
    pairs: list[Pair]
    ratio_to_replay: float
    cpu_ratio: float | None
    ratio_target: float
    turns_target: float
    left_behind: LeftBehind
    met: bool


async def compare(
    setup: Setup, in_flight: int, pairs: int, status: Status, run: BenchRun
) -> tuple[list[Pair], list[Recorded]]:
    """Play as many episodes at once as `in_flight`, and replay what was sent, `pairs` times.

    Returns:
        The figures, and what was recorded last.

    Raises:
        ServingError, HostError, StorageError, RunStopped: something failed.
    """
    measured: list[Pair] = []
    episodes: list[Recorded] = []
    async with (
        bench_deployment(setup.card, setup, status) as deployment,
        run.hosts(in_flight) as pool,
        deployment.client(run.directory.append_request) as model,
    ):
        for number in range(pairs):
            status(f"pair {number + 1} of {pairs}: rollout")
            actor = RecordingActor(setup, model)
            await actor.warm(run.spec(), Labels())
            lap = Lap()
            played = await run.play(actor, pool, in_flight)
            ours = lap.per_token(sum(each.usage.completion for each in played))
            status(f"pair {number + 1} of {pairs}: bare replay")
            salt = secrets.token_hex(8)
            episodes = [recorded(actor.talks[each.episode], each) for each in played]
            await warm(deployment, episodes, actor.shared_prefix(run.spec()), salt)
            lap = Lap()
            bare = lap.per_token(await replay(deployment, episodes, salt))
            cpu_ms = (ours[1], bare[1]) if deployment.server is not None else (None, None)
            measured.append(Pair(ours[0], bare[0], *cpu_ms))
    return measured, episodes


async def measure(
    setup: Setup, in_flight: int, pairs: int, client_in_flight: int, status: Status, folder: Path
) -> tuple[list[Pair], Client, list[str]]:
    """Compare with a bare replay, then measure the client alone with the answers of the last rollout.

    Returns:
        What was measured, and the names of the tasks that are left.

    Raises:
        ServingError, HostError, StorageError, RunStopped: something failed.
    """
    before = asyncio.all_tasks()
    with bench_run(setup, folder) as run:
        compared, episodes = await compare(setup, in_flight, pairs, status, run)
        answers = [ids for each in episodes for ids in each.answers]
        client = await measure_client(setup, client_in_flight, answers, status, run)
    return compared, client, [task.get_name() for task in asyncio.all_tasks() - before]


def bench_rollout(
    overrides: Overrides = None,
    in_flight: Annotated[int, typer.Option(min=1, help="Episodes at the same time.")] = 32,
    pairs: Annotated[int, typer.Option(min=1, help="Rollouts, each followed by its replay.")] = 5,
    client_in_flight: Annotated[
        int, typer.Option(min=1, help="Episodes at the same time, for the client alone.")
    ] = 64,
    as_json: AsJson = False,
) -> None:
    """Compare rollouts with a bare replay of their requests, and measure what the client takes by itself.

    The exit status is 1 when the client gives less than 0.90 (on a GPU 0.95) of the output tokens per second
    of the replay, when it takes more than a CPU second for 250 turns, or when it leaves a thread, a task or a
    process behind.

    Example: speedrunner bench rollout model=tiny --pairs 3
    """
    setup = bench_setup(overrides)
    threads, processes = set(threading.enumerate()), set(psutil.Process().children(recursive=True))
    compared, client, tasks = carry_out_in_folder(
        lambda status, folder: measure(setup, in_flight, pairs, client_in_flight, status, folder)
    )
    left = LeftBehind(
        tasks,
        [each.name for each in threading.enumerate() if each not in threads and not _ends(each)],
        [" ".join(each.cmdline()) for each in set(psutil.Process().children(recursive=True)) - processes],
    )
    ratio, target = statistics.median(each.ratio for each in compared), ratio_target(setup.card)
    cpu_ratios = [each.cpu_ratio for each in compared if each.cpu_ratio is not None]
    result = Result(
        model=setup.card.name,
        in_flight=in_flight,
        pairs=compared,
        ratio_to_replay=ratio,
        cpu_ratio=statistics.median(cpu_ratios) if cpu_ratios else None,
        ratio_target=target,
        **msgspec.structs.asdict(client),
        turns_target=TURNS_TARGET,
        left_behind=left,
        met=ratio >= target and client.turns_per_second_per_core >= TURNS_TARGET and left.nothing,
    )
    typer.echo(json.dumps(msgspec.to_builtins(result)) if as_json else _text(result))
    if not result.met:
        raise typer.Exit(1)


def _ends(thread: threading.Thread) -> bool:
    """Whether a thread has ended, or does so at once."""
    thread.join(timeout=1.0)
    return not thread.is_alive()


def ratio_target(card: ModelCard) -> float:
    """On a CPU, both sides share the machine's cores with the engine."""
    return GPU_RATIO_TARGET if card.gpus else RATIO_TARGET


def _text(result: Result) -> str:
    left = result.left_behind
    return "\n".join(
        [
            f"{result.model}: output tokens per second with {result.in_flight} episodes in flight",
            f"{'':8}{'our client':>12}{'bare replay':>13}{'ratio':>8}{'CPU ms per token':>20}",
            *(_line(number, each) for number, each in enumerate(result.pairs, start=1)),
            f"Target: a median ratio of {result.ratio_target:.2f} or more: {result.ratio_to_replay:.3f},"
            f" {_met(result.ratio_to_replay >= result.ratio_target)}.",
            *_cpu_line(result.cpu_ratio),
            f"The client alone, {result.client_in_flight} episodes in flight, an engine that answers at once,"
            f" prompts of {result.client_prompt_tokens:.0f} tokens:",
            f"{result.client_turns} turns in {result.client_cpu_s:.2f} s of CPU time; at its peak"
            f" {result.mb_per_episode:.0f} MB for each episode in flight, its host included.",
            f"Target: {result.turns_target:.0f} turns per CPU second or more:"
            f" {result.turns_per_second_per_core:.0f},"
            f" {_met(result.turns_per_second_per_core >= result.turns_target)}.",
            "Nothing is left behind: no task, no thread, no process."
            if left.nothing
            else f"LEFT BEHIND: {', '.join([*left.tasks, *left.threads, *left.processes])}.",
        ]
    )


def _line(number: int, pair: Pair) -> str:
    line = f"pair {number:<3}{pair.ours:12.0f}{pair.replay:13.0f}{pair.ratio:8.3f}"
    if pair.cpu_ratio is None:
        return line
    return f"{line}{pair.ours_cpu_ms:9.3f} /{pair.replay_cpu_ms:9.3f}"


def _cpu_line(ratio: float | None) -> list[str]:
    if ratio is None:
        return []
    return [f"The same by CPU time per token, on which other work of the machine tells less: {ratio:.3f}."]


def _met(met: bool) -> str:
    return "met" if met else "MISSED"
