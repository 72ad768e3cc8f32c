"""What isolation costs: `python -m tests.bench sandbox`."""

from __future__ import annotations

import asyncio
import inspect
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from envs import Limits, Opening, Outcome, Primitive, Task, TextEnv
from serving.tokens.tools import ToolCall
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.config.console import Status
from speedrunner.store.records import Module
from speedrunner.workers.sandbox.child_process import ChildPool, require
from speedrunner.workers.sandbox.settings import Sandbox
from speedrunner.workers.worker_episode import WorkerEpisode
from speedrunner.workers.worker_messages import Execute, Executed, Reset

EPISODES = 25
CALLS = 5_000
EPISODE_S = 1.0
"""Seconds between the beginnings of two episodes; those that a model plays last longer."""

WAIT_TARGET_MS = 30.0
ROUND_TRIP_TARGET_MS = 0.2

SKILL = '''
import time


def cross(calls):
    """Call the primitive again and again; return how long each took."""
    seconds = []
    for _ in range(calls):
        before = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - before)
    return seconds
'''


@dataclass(frozen=True)
class Spread:
    """Milliseconds that something took."""

    milliseconds: str
    median: float
    p99: float

    @classmethod
    def of(cls, what: str, seconds: Sequence[float]) -> Spread:
        """Summarize measured seconds."""
        ordered = sorted(1_000 * each for each in seconds)
        return cls(what, statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1])


class Nothing(TextEnv):
    """A world in which nothing happens."""

    primitives = (Primitive("step", inspect.Signature(return_annotation=str), "Do nothing."),)
    description = ""
    limits = Limits(1, None)
    done = False

    def reset(self, task: Task) -> Opening:
        """Begin nothing."""
        return Opening("", "")

    def call(self, name: str, **arguments: Any) -> str:
        """Do nothing."""
        return "Nothing happens."

    def outcome(self) -> Outcome:
        """Nothing."""
        return Outcome(0.0, False, {})


async def measure_sandbox(status: Status) -> Measurement:
    """Play short episodes and count the time; takes about 30 seconds. Raises `SandboxError`."""
    require(Sandbox())
    env = Nothing()
    reset = Reset(Task(Nothing.name, "default", 0), Module(SKILL, ("cross",)), None)
    waits: list[float] = []
    crossings: list[float] = []
    with closing(ChildPool(Sandbox())) as pool:
        pool.refill()
        for number in range(EPISODES):
            status(f"episode {number + 1} of {EPISODES}; the last one waited {1000 * sum(waits[-1:]):.2f} ms")
            await asyncio.sleep(EPISODE_S)
            began = time.perf_counter()
            with closing(WorkerEpisode(env, pool, reset)) as episode:
                waits.append(time.perf_counter() - began)
                pool.refill()
                executed = episode.execute(Execute(ToolCall("cross", {"calls": CALLS // EPISODES}), 60.0))
            assert isinstance(executed, Executed)
            crossings += executed.node.result
    module: dict[str, Any] = {"step": lambda: env.call("step")}
    exec(SKILL, module)
    wait = Spread.of("wait of an episode for its process", waits)
    crossing = Spread.of("primitive, called across the sandbox", crossings)
    plain = Spread.of("the same, called within one process", module["cross"](CALLS))
    return Measurement(
        "What isolating skills costs",
        figures=[
            Figure("wait, p99, ms", wait.p99, at_most=WAIT_TARGET_MS),
            Figure("primitive, median, ms", crossing.median, at_most=ROUND_TRIP_TARGET_MS),
            Figure("a primitive across the sandbox takes times as long", crossing.median / plain.median),
        ],
        tables=[Table("spreads", [wait, crossing, plain], columns("milliseconds", "median:.4f", "p99:.4f"))],
    )
