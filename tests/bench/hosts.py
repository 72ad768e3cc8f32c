"""What hosts cost until they can play, and what their skills add: `python -m tests.bench hosts`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from envs import Task, splits
from serving.tokens.tools import ToolCall
from speedrunner.bench import resources
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.console import Status
from speedrunner.hosts.host_pool import HostPool, TooManyHosts
from speedrunner.hosts.process_host import ProcessHost
from speedrunner.store.records import Module

ENVS = ("babyai", "crafter", "scienceworld")
OPTIONS: dict[str, dict[str, Any]] = {"scienceworld": {"family": 3}}

MOST = {("babyai", 32): {"ready_s": 3.0, "cpu_s": 4.0, "mb_each": 20.0}}
"""The most that so many hosts may take."""

SKILL = Module("def rest():\n    return None", ("rest",))
CALL_LIMIT_S = 60.0


@dataclass(frozen=True)
class Cost:
    """What so many hosts took.

    Attributes:
        ready_s: until all had made their environment.
        begun_s: until all had begun an episode, side by side.
        cpu_s: CPU seconds of all processes until then.
        mb: memory of the processes then, pages that they share counted once.
        mb_each: the same, divided by the hosts.
        skills_s: until all had begun another episode and called a skill.
        skills_cpu_s, skills_mb_each: what that added: two sandboxed processes a host, one of them spare.
    """

    env: str
    hosts: int
    ready_s: float
    begun_s: float
    cpu_s: float
    mb: float
    mb_each: float
    skills_s: float
    skills_cpu_s: float
    skills_mb_each: float


async def measure_hosts(status: Status, envs: Sequence[str], counts: Sequence[int]) -> Measurement:
    """Start so many hosts of each environment, one count after another.

    Raises `UnknownEnvironment`, `HostError` where they do not start.
    """
    costs: list[Cost] = []
    notes: list[str] = []
    for env in envs:
        for count in counts:
            found = "".join(
                f"; {each.hosts} of {each.env}: {each.begun_s:.1f} s, {each.mb:.0f} MB" for each in costs
            )
            status(f"{count} hosts of {env}{found}")
            try:
                costs.append(await _cost(env, count))
            except TooManyHosts as refused:
                notes.append(str(refused))
    figures = [
        Figure(f"{cost.hosts} hosts of {cost.env}, {name}", getattr(cost, name), at_most=most)
        for cost in costs
        for name, most in MOST.get((cost.env, cost.hosts), {}).items()
    ]
    shown = columns(
        *("env", "hosts", "ready_s:.2f", "begun_s:.2f", "cpu_s:.2f", "mb:.0f", "mb_each:.1f"),
        *("skills_s:.2f", "skills_cpu_s:.2f", "skills_mb_each:.1f"),
    )
    return Measurement("What hosts take", figures, [Table("hosts", costs, shown)], notes=notes)


async def _cost(env: str, count: int) -> Cost:
    task = splits(env, **OPTIONS.get(env, {})).test[0]
    before_s, before_mb = resources.cpu_s(), resources.memory_mb(resources.below())  # of somebody else's
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(HostPool(count, env))
        await pool.ready()
        ready_s = time.monotonic() - began
        hosts = [await stack.enter_async_context(pool.host()) for _ in range(count)]
        await asyncio.gather(*(host.reset(task, Module(), None) for host in hosts))
        begun_s, cpu_s = time.monotonic() - began, resources.cpu_s() - before_s
        mb = resources.memory_mb(resources.below()) - before_mb
        again = time.monotonic()
        await asyncio.gather(*(_with_skill(host, task) for host in hosts))
        skills_s = time.monotonic() - again
        return Cost(
            env=env,
            hosts=count,
            ready_s=ready_s,
            begun_s=begun_s,
            cpu_s=cpu_s,
            mb=mb,
            mb_each=mb / count,
            skills_s=skills_s,
            skills_cpu_s=resources.cpu_s() - before_s - cpu_s,
            skills_mb_each=(resources.memory_mb(resources.below()) - before_mb - mb) / count,
        )


async def _with_skill(host: ProcessHost, task: Task) -> None:
    await host.reset(task, SKILL, None)
    await host.execute(ToolCall("rest", {}), CALL_LIMIT_S)
