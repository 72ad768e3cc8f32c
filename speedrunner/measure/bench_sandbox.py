"""What isolation costs: `speedrunner bench sandbox`."""

from __future__ import annotations

import inspect
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer

from envs import Limits, Opening, Outcome, Primitive, Task, TextEnv
from speedrunner.cli.command import AsJson

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
    """Milliseconds."""

    median: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Summarize measured seconds."""
        ordered = sorted(1_000 * each for each in seconds)
        return cls(statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1])


@dataclass(frozen=True)
class Result:
    """What was measured.

    Attributes:
        wait_ms: from an episode's beginning until it has a process of its own with its library.
        round_trip_ms: a primitive that does nothing, called by a skill in the sandbox.
        in_process_ms: the same primitive, called by the same skill without a sandbox.
        ratio: of the two medians.
        met: whether `wait_ms.p99` and `round_trip_ms.median` are under their targets.
    """

    wait_ms: Spread
    round_trip_ms: Spread
    in_process_ms: Spread
    ratio: float
    wait_target_ms: float
    round_trip_target_ms: float
    met: bool


class Nothing(TextEnv):
    """A world in which nothing happens."""

    def __init__(self) -> None:
        signature = inspect.Signature(return_annotation=str)
        self.primitives = (Primitive("step", signature, "Do nothing."),)
        self.description = ""
        self.limits = Limits(1, None)

    def reset(self, task: Task) -> Opening:
        """Begin nothing."""
        return Opening("", "")

    def call(self, name: str, **arguments: Any) -> str:
        """Do nothing."""
        return "Nothing happens."

    @property
    def done(self) -> bool:
        """Never."""
        return False

    def outcome(self) -> Outcome:
        """Nothing."""
        return Outcome(0.0, False, {})


def measure() -> Result:
    """Play short episodes and count the time; takes about 30 seconds. Raises `SandboxError`."""
    from speedrunner.hosts.hosted_episode import HostedEpisode
    from speedrunner.hosts.messages import Execute, Executed, Reset
    from speedrunner.sandbox.child_pool import ChildPool
    from speedrunner.sandbox.child_process import require
    from speedrunner.sandbox.settings import Sandbox
    from speedrunner.store.records import Module, ToolCall

    require(Sandbox())
    env = Nothing()
    pool = ChildPool(Sandbox())
    reset = Reset(Task(Nothing.name, "default", 0), Module(SKILL, ("cross",)), None)
    waits = []
    crossings: list[float] = []
    try:
        pool.refill()
        for _ in range(EPISODES):
            time.sleep(EPISODE_S)
            began = time.perf_counter()
            episode = HostedEpisode(env, pool, reset)
            waits.append(time.perf_counter() - began)
            try:
                pool.refill()
                executed = episode.execute(Execute(ToolCall("cross", {"calls": CALLS // EPISODES}), 60.0))
            finally:
                episode.close()
            assert isinstance(executed, Executed)
            crossings += executed.node.result
    finally:
        pool.close()
    module: dict[str, Any] = {"step": lambda: env.call("step")}
    exec(SKILL, module)
    wait, crossing, plain = Spread.of(waits), Spread.of(crossings), Spread.of(module["cross"](CALLS))
    met = wait.p99 < WAIT_TARGET_MS and crossing.median < ROUND_TRIP_TARGET_MS
    ratio = crossing.median / plain.median
    return Result(wait, crossing, plain, ratio, WAIT_TARGET_MS, ROUND_TRIP_TARGET_MS, met)


def sandbox(as_json: AsJson = False) -> None:
    """Measure what isolating skills costs, for about 30 seconds.

    The exit status is 1 when a target is missed.

    Example: speedrunner bench sandbox --json
    """
    result = measure()
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        rows = (
            ("wait of an episode for its process", result.wait_ms),
            ("primitive, called across the sandbox", result.round_trip_ms),
            ("the same, called within one process", result.in_process_ms),
        )
        typer.echo(f"{'milliseconds':38}{'median':>10}{'p99':>10}")
        for name, spread in rows:
            typer.echo(f"{name:38}{spread.median:10.4f}{spread.p99:10.4f}")
        typer.echo(f"The sandbox makes a primitive {result.ratio:.0f} times as slow.")
        typer.echo(
            f"Targets: p99 of the wait under {result.wait_target_ms:g} ms, median of a primitive under"
            f" {result.round_trip_target_ms:g} ms: {'met' if result.met else 'MISSED'}."
        )
    if not result.met:
        raise typer.Exit(1)
