"""How fast the environments are, and what memory they take: `speedrunner bench envs`."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import random
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psutil

from envs import Task, make, splits
from envs.random_play import made_up_arguments
from speedrunner.measure.measurement import Figure, Measurement, Status, Table, columns
from speedrunner.measure.processes import below, memory_mb


@dataclass(frozen=True)
class Effort:
    """What is played of an environment.

    Attributes:
        warm_s: seconds for which it is played before it is measured. What is compiled while it runs,
            ScienceWorld's Java above all, is slow for its first thousand steps.
        worlds: that are measured.
        steps: of each of them.
        options: the environment's.
    """

    warm_s: float
    worlds: int
    steps: int
    options: Mapping[str, Any] = field(default_factory=dict)


EFFORTS = {
    "babyai": Effort(warm_s=1, worlds=40, steps=60),
    "scienceworld": Effort(warm_s=30, worlds=24, steps=60, options={"family": 3}),
    "crafter": Effort(warm_s=5, worlds=8, steps=300),
}

MOST_MB = {"scienceworld": 480.0}


@dataclass(frozen=True)
class Pace:
    """How fast an environment is, and the megabytes that its process takes (ScienceWorld's: its Java)."""

    env: str
    steps_per_s: float
    resets_per_s: float
    mb: float


async def measure_envs(status: Status, efforts: Mapping[str, Effort] = EFFORTS) -> Measurement:
    """Play each environment at random in a process of its own; takes about a minute."""
    found: list[Pace] = []
    for env, effort in efforts.items():
        so_far = "".join(f"; {each.env}: {each.steps_per_s:.0f} steps/s" for each in found)
        status(f"{env}, after {effort.warm_s:g} s to warm up{so_far}")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            found.append(await asyncio.wrap_future(process.submit(pace, env, effort)))
    return Measurement(
        "The environments, each in a process of its own",
        figures=[
            Figure(f"{each.env}, MB", each.mb, at_most=MOST_MB[each.env])
            for each in found
            if each.env in MOST_MB
        ],
        tables=[Table("envs", found, columns("env", "steps_per_s:.1f", "resets_per_s:.1f", "mb:.1f"))],
    )


def pace(name: str, effort: Effort) -> Pace:
    """Play an environment in this process, and read what a host reads for each tool call."""
    env, draw = make(name, **effort.options), random.Random(0)
    acts = [each for each in env.primitives if each.advances]
    worlds = splits(name, **effort.options).test[: effort.worlds]

    def play(task: Task) -> tuple[float, int, float]:
        """Seconds of the reset; steps, and their seconds."""
        began = time.perf_counter()
        opening = env.reset(task)
        reset_s = time.perf_counter() - began
        words = [*opening.instruction.split(), *opening.observation.split()]
        chosen = draw.choices(acts, k=effort.steps)
        calls = [(act.name, made_up_arguments(act, words, draw)) for act in chosen]
        steps, began = 0, time.perf_counter()
        for act, arguments in calls:
            env.call(act, **arguments)
            env.surroundings()
            env.outcome()
            steps += 1
            if env.done:
                break
        return reset_s, steps, time.perf_counter() - began

    warm_until = time.monotonic() + effort.warm_s
    for task in itertools.cycle(worlds):
        play(task)
        if time.monotonic() >= warm_until:
            break
    resets_s, steps, steps_s = (sum(each) for each in zip(*map(play, worlds), strict=True))
    return Pace(name, steps / steps_s, len(worlds) / resets_s, memory_mb(below() or [psutil.Process()]))
