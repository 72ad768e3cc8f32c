"""What workers cost until they can play, and what their skills add: `python -m tests.bench workers`."""

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
from speedrunner.config.console import Status
from speedrunner.store.records import Module
from speedrunner.workers.process_worker import ProcessWorker
from speedrunner.workers.worker_pool import TooManyWorkers, WorkerPool

ENVS = ("babyai", "crafter", "scienceworld")
OPTIONS: dict[str, dict[str, Any]] = {"scienceworld": {"family": 3}}

MOST = {("babyai", 32): {"ready_s": 3.0, "cpu_s": 4.0, "mb_each": 20.0}}
"""The most that so many workers may take."""

SKILL = Module("def rest():\n    return None", ("rest",))
CALL_LIMIT_S = 60.0


@dataclass(frozen=True)
class Cost:
    """What so many workers took.

    Attributes:
        ready_s: until all had made their environment.
        begun_s: until all had begun an episode, side by side.
        cpu_s: CPU seconds of all processes until then.
        mb: memory of the processes then, pages that they share counted once.
        mb_each: the same, divided by the workers.
        skills_s: until all had begun another episode and called a skill.
        skills_cpu_s, skills_mb_each: what that added: two sandboxed processes a worker, one of them spare.
    """

    env: str
    workers: int
    ready_s: float
    begun_s: float
    cpu_s: float
    mb: float
    mb_each: float
    skills_s: float
    skills_cpu_s: float
    skills_mb_each: float


async def measure_workers(status: Status, envs: Sequence[str], counts: Sequence[int]) -> Measurement:
    """Start so many workers of each environment, one count after another.

    Raises `UnknownEnvironment`, `WorkerError` where they do not start.
    """
    costs: list[Cost] = []
    notes: list[str] = []
    for env in envs:
        for count in counts:
            found = "".join(
                f"; {each.workers} of {each.env}: {each.begun_s:.1f} s, {each.mb:.0f} MB" for each in costs
            )
            status(f"{count} workers of {env}{found}")
            try:
                costs.append(await _cost(env, count))
            except TooManyWorkers as refused:
                notes.append(str(refused))
    figures = [
        Figure(f"{cost.workers} workers of {cost.env}, {name}", getattr(cost, name), at_most=most)
        for cost in costs
        for name, most in MOST.get((cost.env, cost.workers), {}).items()
    ]
    shown = columns(
        *("env", "workers", "ready_s:.2f", "begun_s:.2f", "cpu_s:.2f", "mb:.0f", "mb_each:.1f"),
        *("skills_s:.2f", "skills_cpu_s:.2f", "skills_mb_each:.1f"),
    )
    return Measurement("What workers take", figures, [Table("workers", costs, shown)], notes=notes)


async def _cost(env: str, count: int) -> Cost:
    task = splits(env, **OPTIONS.get(env, {})).test[0]
    before_s, before_mb = resources.cpu_s(), resources.memory_mb(resources.below())  # of somebody else's
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(WorkerPool(count, env))
        await pool.ready()
        ready_s = time.monotonic() - began
        workers = [await stack.enter_async_context(pool.worker()) for _ in range(count)]
        await asyncio.gather(*(worker.reset(task, Module(), None) for worker in workers))
        begun_s, cpu_s = time.monotonic() - began, resources.cpu_s() - before_s
        mb = resources.memory_mb(resources.below()) - before_mb
        again = time.monotonic()
        await asyncio.gather(*(_with_skill(worker, task) for worker in workers))
        skills_s = time.monotonic() - again
        return Cost(
            env=env,
            workers=count,
            ready_s=ready_s,
            begun_s=begun_s,
            cpu_s=cpu_s,
            mb=mb,
            mb_each=mb / count,
            skills_s=skills_s,
            skills_cpu_s=resources.cpu_s() - before_s - cpu_s,
            skills_mb_each=(resources.memory_mb(resources.below()) - before_mb - mb) / count,
        )


async def _with_skill(worker: ProcessWorker, task: Task) -> None:
    await worker.reset(task, SKILL, None)
    await worker.execute(ToolCall("rest", {}), CALL_LIMIT_S)
