"""Play many episodes in one process, and measure whether anything grows: `make soak N=10000`.

    python -m tests.chaos.soak --episodes 10000

The process plays one short run after another, as a sweep does: it opens and closes workers, code sessions,
clients and run directories, and measures after each run what is left. The scripted engine runs in another
process, so its memory does not count. Exit status 1: objects, descriptors, threads or processes have grown.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import psutil
import yaml
from rich.console import Console

from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.config.compose import compose
from speedrunner.runs.planned_runs import PlannedRun
from speedrunner.runs.player import play_runs
from speedrunner.runs.setup import set_up
from speedrunner.runs.shutdown import Shutdown
from tests.bundled_models import bundled_folder
from tests.scripted_engine import Answer, Request, ScriptedEngine, call
from tests.scripted_runs import CORRIDOR, LEARN, flag, roomy, script

ROLLOUTS, SLEEP_EVERY = 100, 25
"""Episodes of one run, and episodes between two of its sleeps."""

WARM_UP = 0.2
"""Share of the runs before the first sample that counts: caches fill, and memory is divided up."""

MORE_OBJECTS = 1_000
"""Objects that may be added; one leaked object per episode is more."""

INDUCER = (call("execute_code", code="len(load_trajectories())"), *LEARN)


class Sample(msgspec.Struct, frozen=True):
    """What the process has after a run.

    Attributes:
        episodes: episodes played so far.
        memory: resident memory in MiB.
        objects: objects that Python's garbage collector knows.
        processes: child processes.
        cpu: CPU milliseconds per episode of this run, of this process alone.
    """

    episodes: int
    memory: float
    objects: int
    descriptors: int
    threads: int
    processes: int
    cpu: float


THREADS = 8


async def play(episodes: int, folder: Path) -> list[Sample]:
    """Play runs until there are as many episodes; returns a sample after each run."""
    samples = []
    await _start_threads()
    with _engine() as endpoint:
        for number in range(episodes // ROLLOUTS):
            cpu, path = time.process_time(), folder / "run"
            await _play_run(path, endpoint, number)
            cpu = time.process_time() - cpu
            shutil.rmtree(path)
            samples.append(_sample((number + 1) * ROLLOUTS, cpu))
            print(samples[-1], file=sys.stderr, flush=True)
    return samples


async def _start_threads() -> None:
    """Start all threads of the loop's pool. By itself it starts one whenever all others are busy."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    barrier = threading.Barrier(THREADS)
    await asyncio.gather(*(asyncio.to_thread(barrier.wait) for _ in range(THREADS)))


def table(first: Sample, last: Sample) -> str:
    """Return each quantity after two runs as a Markdown table."""
    before, after = msgspec.structs.asdict(first), msgspec.structs.asdict(last)
    rows = [f"| {name} | {before[name]:,.6g} | {after[name]:,.6g} |" for name in before]
    return "\n".join(["| | before | after |", "|---|---|---|", *rows])


def has_grown(first: Sample, last: Sample) -> bool:
    """Return whether the process has more descriptors, threads or processes, or many more objects."""
    kinds = ("descriptors", "threads", "processes")
    more = any(getattr(last, kind) > getattr(first, kind) for kind in kinds)
    return more or last.objects - first.objects > MORE_OBJECTS


async def _play_run(path: Path, endpoint: str, seed: int) -> None:
    model = roomy(load_model_config("tiny-random"), path=bundled_folder("tiny-random"))
    file = path.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(msgspec.to_builtins(model)))
    settings = [
        *(f"env={CORRIDOR}", f"env.train={ROLLOUTS}", f"run.rollouts={ROLLOUTS}", "run.test_episodes=0"),
        *(f"run.sleep_every={SLEEP_EVERY}", "run.in_flight=4", f"run.seed={seed}", f"run.dir={path}"),
        *(f"model.name={file}", f"serving.url={endpoint}"),
    ]
    shutdown = Shutdown(lambda line: None, 60.0)
    runs = [PlannedRun(set_up(compose(settings)))]
    await shutdown.run(play_runs(runs, Console(file=io.StringIO()), shutdown))


def _sample(episodes: int, cpu_s: float) -> Sample:
    gc.collect()
    process = psutil.Process()
    return Sample(
        episodes=episodes,
        memory=process.memory_info().rss / 2**20,
        objects=len(gc.get_objects()),
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        processes=len(process.children(recursive=True)) - 2,  # the engine and multiprocessing's tracker
        cpu=1_000 * cpu_s / ROLLOUTS,
    )


@contextmanager
def _engine() -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _serve(pipe: Connection) -> None:
    answers = script(_actor, INDUCER)
    with ScriptedEngine(ChatTokenizer(bundled_folder("tiny-random")), ()) as engine:

        def answer(request: Request) -> Answer:
            if len(engine.requests) > 1_000:
                engine.forget()
            return answers(request)

        engine.script = answer
        pipe.send(str(engine.endpoint))
        pipe.recv()


def _actor(request: Request) -> Answer:
    """Walk to the flag in a few steps, or call the skill in every other world."""
    if "to_flag" in request.tools and flag(request) % 2:
        return call("to_flag")
    return call("walk", steps=max(flag(request) // 3, 1))


def main() -> int:
    """Play the episodes that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak")
    parser.add_argument("--episodes", type=int, default=1_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        samples = asyncio.run(play(given.episodes, Path(folder)))
    first, last = samples[int(len(samples) * WARM_UP)], samples[-1]
    print(table(first, last))
    return int(has_grown(first, last))


if __name__ == "__main__":
    sys.exit(main())
