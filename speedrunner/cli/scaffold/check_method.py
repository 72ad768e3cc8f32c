"""Check in a small run that a method fulfils the contract of `speedrunner.methods.Method`.

The run uses the machinery of any run, and a model that makes up its answers: always the same for the same
conversation. It is played twice, the second time with a new instance of the method for each step.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec.structs import replace

from serving.conversation import Completion, Conversation
from serving.model import Messages
from serving.tokens.tools import ToolCall, ToolSpec
from serving.usage import Usage
from speedrunner.agents.actor import Actor
from speedrunner.cli.scaffold.check_environment import invent_value
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config
from speedrunner.runs.executor import Executor
from speedrunner.runs.local_model import LocalModel
from speedrunner.runs.open_run import open_new_run
from speedrunner.runs.plan import unfinished_steps
from speedrunner.runs.setup import set_up
from speedrunner.store.run_data import RunData, load
from speedrunner.workers.env_worker import WorkerError

SIZE = (
    *("run.rollouts=4", "run.sleep_every=2", "run.eval_every=4", "run.test_episodes=1", "run.in_flight=2"),
    *("model.actor.max_calls=20", "model.inducer.max_calls=20"),
)
"""Two batches with their sleeps, and an evaluation before and after them; few requests of each agent, but
enough to try each of its tools in order."""


def check_method(name: str, *overrides: str) -> list[str]:
    """Check that a method keeps the promises of `speedrunner.methods.Method`.

    In a test:

        assert check_method("my_method:MyMethod", "env=crafter") == []

    Args:
        name: as in `method=NAME`.
        overrides: settings of the run, such as `method.OPTION=VALUE` and `env=NAME`.

    Returns:
        One line for each promise that is not kept.

    Raises:
        InvalidConfig, UnknownMethod, InvalidMethodOption, MethodBroke, InvalidPolicy, EnvironmentFault: the
            method or its environment cannot be created, or returned something else than promised.
        WorkerError, SandboxUnavailable: the environment or the sandbox failed.
        Exception: whatever the method raises.
    """
    config = compose([f"method={name}", *overrides, *SIZE])
    with TemporaryDirectory() as folder:
        first = asyncio.run(_play(config, Path(folder, "first"), renews_method=False))
        again = asyncio.run(_play(config, Path(folder, "again"), renews_method=True))
        problems = _changes_of_policies(config, first), _first_difference(first, again)
        return [problem for problem in problems if problem is not None]


async def _play(config: Config, folder: Path, *, renews_method: bool) -> RunData:
    """Play the run, each step with a new instance of the method or all with the same.

    Raises `WorkerError`: an episode ended by an infrastructure error.
    """
    setup = set_up(config)
    model = FakeModel(replace(setup.model_config, api="chat", base_url="http://localhost"))
    with open_new_run(setup, folder) as directory:
        async with setup.workers(config.run.in_flight) as pool:
            for due in unfinished_steps(setup.plan(), directory.read()):
                method = set_up(config).method if renews_method else setup.method
                await Executor(directory, method, Actor(setup.env, model, config), pool).execute([due])
                run = directory.read()
                for played in (*run.trajectories(), *run.evaluations()):
                    if played.termination.is_fault:
                        raise WorkerError(f"{played.task} ended by {played.termination}: {played.fault}")
    await model.engine.close()
    return load(folder)


def _changes_of_policies(config: Config, run: RunData) -> str | None:
    """Return that `agent` changes the policy that it gets; `None` if it does not."""
    setup = set_up(config)
    for played in run.trajectories():
        policy = run.policies.load(played.policy)
        before = msgspec.json.encode(policy)
        setup.method.agent(policy, played.task, setup.env, training=True)
        if msgspec.json.encode(policy) != before:
            return "agent: changed the policy that was passed to it"
    return None


def _first_difference(first: RunData, again: RunData) -> str | None:
    """Return the first difference between both plays of the run; `None` if there is none."""
    for version in first.policies.versions():
        parts, repeated = _results(first, version), _results(again, version)
        for part, result in parts.items():
            if result != repeated[part]:
                return f"{part} differs with a new instance of the method, at the policy v{version:04d}"
    return None


def _results(run: RunData, version: int) -> dict[str, object]:
    """Return what a method has done with a version of the policy, by the method's part."""
    played = [episode for episode in (*run.trajectories(), *run.evaluations()) if episode.policy == version]
    turns = {episode.episode: [(turn.messages, turn.call) for turn in episode.turns] for episode in played}
    return {
        "sleep: the new policy" if version else "initial: the policy": run.policies.load(version),
        "agent: the actor's prompt": {episode.episode: episode.prompt_hash for episode in played},
        "play: an episode": turns,
    }


SKILL = 'def idea_{number}() -> str:\n    """Say a number."""\n    return "{number}"'
"""Half of all string arguments are this skill, so that programs written by agents are tried as well."""


class FakeModel(LocalModel):
    """Its answers depend on the conversation only, in any process. It sends no requests."""

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        """See `Model`."""
        return _Fake([role, *(message["content"] for message in messages)], tools)


class _Fake(Conversation):
    """One conversation: `texts` are the role and all messages to the model."""

    def __init__(self, texts: list[str], tools: list[ToolSpec]) -> None:
        self._texts = texts
        self._tools = tools
        self._answers = 0

    async def request_answer(self) -> Completion:
        said = json.dumps([self._texts, [tool.name for tool in self._tools]]).encode()
        rng = random.Random(hashlib.sha256(said).digest())
        tool = self._tools[self._answers % len(self._tools)]
        skill, name = (text.format(number=rng.randrange(3)) for text in (SKILL, "idea_{number}"))
        texts = [skill, skill, name, rng.choice(self._texts[-1].split() or ["word"])]
        call = ToolCall(tool.name, invent_value(tool.parameters, texts, rng))
        self._answers += 1
        usage = Usage(prompt=len(said), completion=1)
        return Completion(text="Hm.", reasoning="", call=call, problem=None, usage=usage, seconds=0.0)

    def tell(self, text: str) -> None:
        self._texts.append(text)
