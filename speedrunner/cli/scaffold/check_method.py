"""Check in a small run that a method fulfils the contract of `speedrunner.methods.Method`."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, cast

from serving.conversation import Conversation
from serving.model import Messages
from serving.tokens.tools import ToolCall, ToolSpec
from speedrunner.cli.scaffold.check_environment import invent_value
from speedrunner.config.compose import compose
from speedrunner.methods import Method
from speedrunner.runs.local_model import LocalModel, Program, ProgrammedConversation, play_with
from speedrunner.runs.setup import set_up
from speedrunner.store.run_data import RunData
from speedrunner.workers.env_worker import WorkerError

SIZE = (
    *("run.rollouts=4", "run.sleep_every=2", "run.eval_every=4", "run.test_episodes=1", "run.in_flight=2"),
    *("model.actor.max_calls=20", "model.inducer.max_calls=20"),
)
"""Two batches with their sleeps, and an evaluation before and after them; few requests of each agent, but
enough to try each of its tools in order."""


def check_method(name: str, *overrides: str) -> list[str]:
    """Check that a method keeps the promises of `speedrunner.methods.Method`.

    A small run is played with invented calls, then again with a new instance of the method for each call of
    it. Both must be equal. In a test:

        assert check_method("my_method:MyMethod", "env=crafter") == []

    Args:
        name: as in `method=NAME`.
        overrides: settings of the run, such as `method.OPTION=VALUE` and `env=NAME`.

    Returns:
        One line for each promise that is not kept.

    Raises:
        InvalidConfig, UnknownMethod, InvalidMethodOption, MethodBroke, InvalidPolicy, EnvironmentFault: the
            method or its environment cannot be created, or returned something else than promised.
        RunStopped, WorkerError, SandboxUnavailable: the environment or the sandbox failed.
        Exception: whatever the method raises.
    """
    given = [f"method={name}", *overrides, *SIZE]
    with TemporaryDirectory() as folder:
        first = _play([*given, f"run.dir={folder}/first"], renews_method=False)
        again = _play([*given, f"run.dir={folder}/again"], renews_method=True)
        for version in first.policies.versions():
            repeated = dict(_results(again, version))
            for part, result in _results(first, version):
                if result != repeated[part]:
                    return [f"{part} differs with a new instance of the method, at the policy v{version:04d}"]
    return []


class _Renewed:
    """A method that is created again for each of its calls."""

    def __init__(self, given: list[str]) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        return getattr(set_up(compose(self._given)).method, name)


def _play(given: list[str], *, renews_method: bool) -> RunData:
    """Play the run. Raises `WorkerError`: an episode ended by an infrastructure error."""
    setup = set_up(compose(given))
    if renews_method:
        setup = replace(setup, method=cast(Method, _Renewed(given)))
    run = asyncio.run(play_with(_Inventing(setup.model_config), setup))
    for played in (*run.trajectories(), *run.evaluations()):
        if played.termination.is_fault:
            raise WorkerError(f"{played.task} ended by {played.termination}: {played.fault}")
    return run


def _results(run: RunData, version: int) -> Iterator[tuple[str, object]]:
    """Yield the method's parts, and what each has done with a version of the policy."""
    yield "sleep: the new policy" if version else "initial: the policy", run.policies.load(version)
    played = [episode for episode in (*run.trajectories(), *run.evaluations()) if episode.policy == version]
    yield "agent: the actor's prompt", {episode.episode: episode.prompt_hash for episode in played}
    turns = {episode.episode: [(turn.messages, turn.call) for turn in episode.turns] for episode in played}
    yield "play: an episode", turns


class _Inventing(LocalModel):
    """Its calls depend on the conversation's first messages only, in any process."""

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        """See `Model`."""
        texts = [role, *(message["content"] for message in messages)]
        return ProgrammedConversation(_invent_calls(texts, tools), tools, 1)


SKILL = 'def idea_{number}() -> str:\n    """Say a number."""\n    return "{number}"'
"""Half of all string arguments are this skill, so that programs written by agents are tried as well."""


def _invent_calls(texts: list[str], tools: list[ToolSpec]) -> Program:
    """Call all tools in turn, with invented arguments."""
    rng = random.Random(hashlib.sha256("\n".join(texts).encode()).digest())
    words = texts[-1].split()
    while True:
        for tool in tools:
            skill, name = (text.format(number=rng.randrange(3)) for text in (SKILL, "idea_{number}"))
            strings = [skill, skill, name, rng.choice(words or ["word"])]
            reply = yield "Hm.", ToolCall(tool.name, invent_value(tool.parameters, strings, rng))
            words = reply.split()
