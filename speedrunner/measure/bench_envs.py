"""How fast the environments are, beside the simulators that they stand in for: `speedrunner bench envs`."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import psutil
import typer

from envs import Task, make
from speedrunner.cli.command import AsJson
from speedrunner.measure.upstream import UPSTREAM, Call, primitive_call

MB = 1_000_000


@dataclass(frozen=True)
class World:
    """A world, and what is done in it."""

    task: Task
    calls: Sequence[Call]


@dataclass(frozen=True)
class Lap:
    """One play of a world: seconds of its reset and of its steps."""

    reset_s: float
    steps: int
    steps_s: float


@dataclass(frozen=True)
class Effort:
    """What is played of each environment.

    Attributes:
        warm_s: seconds for which both sides play before they are measured. What is compiled while it runs,
            ScienceWorld's Java above all, is slow for its first thousand steps.
        worlds: that are measured.
        rounds: how often each of them is played.
        steps: of each world; ScienceWorld's gold paths have their own length.
    """

    warm_s: float
    worlds: int
    rounds: int
    steps: int


EFFORTS = {
    "babyai": Effort(warm_s=1, worlds=40, rounds=1, steps=60),
    "scienceworld": Effort(warm_s=30, worlds=6, rounds=4, steps=0),
    "crafter": Effort(warm_s=5, worlds=8, rounds=1, steps=300),
}
GOLD = (
    ("power-component", 17),
    ("test-conductivity", 675),
    ("test-conductivity-of-unknown-substances", 450),
    ("find-living-thing", 262),
    ("find-plant", 262),
    ("find-animal", 262),
)
"""Test worlds of the families that the paper learns."""

LEAST_RATIO = {("scienceworld", "steps/s"): 6.0, ("crafter", "steps/s"): 6.0, ("crafter", "resets/s"): 10.0}
MOST_MB = {"scienceworld": 480.0}


@dataclass(frozen=True)
class Figure:
    """One figure of an environment beside upstream's.

    Attributes:
        ratio: ours divided by upstream's.
        target: the least ratio, or the most megabytes of ours; `None` where nothing is asked for.
        met: whether it is reached; true without a target.
    """

    env: str
    name: str
    ours: float
    upstream: float
    ratio: float
    target: float | None
    met: bool


class Side(Protocol):
    """An environment of ours, or upstream's."""

    def reset(self, task: Task) -> None:
        """Start a world."""

    def step(self, name: str, arguments: dict[str, Any]) -> bool:
        """Do what the primitive does; returns whether the episode is over."""


class Ours:
    """As an episode uses it."""

    def __init__(self, env: str) -> None:
        self._env = make(env)

    def reset(self, task: Task) -> None:
        """Start a world."""
        self._env.reset(task)

    def step(self, name: str, arguments: dict[str, Any]) -> bool:
        """Act, and read what a host reads for each tool call; upstream's own step tells the score as well."""
        self._env.call(name, **arguments)
        self._env.surroundings()
        self._env.outcome()
        return self._env.done


def measure(efforts: dict[str, Effort] = EFFORTS) -> list[Figure]:
    """Play each environment and upstream's, each in a process of its own; takes about two minutes."""
    return [figure for env, effort in efforts.items() for figure in _compare(env, effort)]


def _compare(env: str, effort: Effort) -> Iterator[Figure]:
    with _process(env, "upstream") as upstream, _process(env, "ours") as ours:
        sides = (ours, upstream)
        worlds = list(_worlds(env, effort, upstream))
        for warmed in [side.submit(_warm, worlds, effort.warm_s) for side in sides]:
            warmed.result()
        laps: list[list[Lap]] = [[], []]
        for world in worlds * effort.rounds:  # in turn, so that what else the machine does slows both
            for side, played in zip(sides, laps, strict=True):
                played.append(side.submit(_lap, world).result())
        memory = [side.submit(_memory).result() for side in sides]
    steps = [sum(lap.steps for lap in played) / sum(lap.steps_s for lap in played) for played in laps]
    resets = [len(played) / sum(lap.reset_s for lap in played) for played in laps]
    for name, (mine, theirs) in {"steps/s": steps, "resets/s": resets}.items():
        least = LEAST_RATIO.get((env, name))
        ratio = mine / theirs
        yield Figure(env, name, mine, theirs, ratio, least, least is None or ratio >= least)
    most = MOST_MB.get(env)
    mine, theirs = memory
    yield Figure(env, "MB", mine, theirs, mine / theirs, most, most is None or mine <= most)


def _worlds(env: str, effort: Effort, upstream: ProcessPoolExecutor) -> Iterator[World]:
    """The worlds to play, each with its calls: gold paths in ScienceWorld, else random ones."""
    if env == "scienceworld":
        for name, variation in GOLD[: effort.worlds]:
            phrases = upstream.submit(_gold, name, variation).result()
            yield World(Task(env, name, variation), [primitive_call(phrase) for phrase in phrases])
        return
    kind = make(env)
    name = kind.splits().test[0].name
    draw = random.Random(0)
    acts = [primitive.name for primitive in kind.primitives if primitive.advances]
    for index in range(effort.worlds):
        yield World(Task(env, name, index), [(draw.choice(acts), {}) for _ in range(effort.steps)])


@contextmanager
def _process(env: str, side: str) -> Iterator[ProcessPoolExecutor]:
    """A process that holds one side."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, _begin, (env, side)) as process:
        yield process


_side: Any = None
"""What the process holds."""


def _begin(env: str, side: str) -> None:
    global _side
    _side = Ours(env) if side == "ours" else UPSTREAM[env]()


def _gold(name: str, variation: int) -> list[str]:
    return list(_side.gold(name, variation))


def _warm(worlds: Sequence[World], seconds: float) -> None:
    until = time.monotonic() + seconds
    for world in itertools.cycle(worlds):
        _lap(world)
        if time.monotonic() >= until:
            return


def _lap(world: World) -> Lap:
    side: Side = _side
    began = time.perf_counter()
    side.reset(world.task)
    reset = time.perf_counter()
    steps = 0
    for name, arguments in world.calls:
        steps += 1
        if side.step(name, arguments):
            break
    return Lap(reset - began, steps, time.perf_counter() - reset)


def _memory() -> float:
    """Resident memory in megabytes: the simulator's own process where it has one, else this one's."""
    own = psutil.Process()
    return sum(process.memory_info().rss for process in own.children(recursive=True) or [own]) / MB


def bench_envs(as_json: AsJson = False) -> None:
    """Measure the environments beside the simulators that they stand in for, for about two minutes.

    Memory is that of the simulator's own process (ScienceWorld's Java), or else of the Python process. The
    exit status is 1 when a target is missed.

    Example: speedrunner bench envs --json
    """
    figures = measure()
    met = all(figure.met for figure in figures)
    if as_json:
        typer.echo(json.dumps({"figures": [asdict(each) for each in figures], "met": met}))
    else:
        typer.echo(f"{'':14}{'':10}{'ours':>10}{'upstream':>10}{'ratio':>8}  target")
        for each in figures:
            typer.echo(
                f"{each.env:14}{each.name:10}{each.ours:10.1f}{each.upstream:10.1f}{each.ratio:8.2f}"
                f"  {_target(each)}".rstrip()
            )
        for env, upstream in UPSTREAM.items():
            typer.echo(f"Upstream of {env}: {upstream.what}.")
    if not met:
        raise typer.Exit(1)


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    asked = f"at most {figure.target:g} MB" if figure.name == "MB" else f"ratio of {figure.target:g} or more"
    return f"{asked}: {'met' if figure.met else 'MISSED'}"
