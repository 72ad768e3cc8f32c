"""Check in a small run that a method fulfils the contract of `speedrunner.methods.Method`.

The run uses the machinery of any run, and a model that makes up its answers: always the same for the same
conversation. Its last sleep and the following steps are played twice from the same records, the second time
with a new instance of the method.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from serving.conversation import Completion, Conversation
from serving.model import Messages
from serving.model_config import ModelConfig, Role, Roles
from serving.tokens.tools import Schema, ToolCall, ToolSpec
from serving.usage import Prices, Usage
from speedrunner.agents.actor import Actor
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config
from speedrunner.runs.executor import Executor
from speedrunner.runs.local_model import LocalModel
from speedrunner.runs.open_run import open_new_run
from speedrunner.runs.plan import Sleep, Step, unfinished_steps
from speedrunner.runs.setup import Setup, set_up
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from speedrunner.workers.env_worker import WorkerError
from speedrunner.workers.worker_pool import WorkerPool

SIZE = ("run.rollouts=4", "run.sleep_every=2", "run.eval_every=4", "run.test_episodes=1", "run.in_flight=2")
"""Two batches with their sleeps, and an evaluation before and after them."""


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
        first, again = Path(folder, "first"), Path(folder, "again")
        asyncio.run(_play_twice(config, first, again))
        findings = _check_agent(set_up(config), set_up(config), load(first))
        return list(dict.fromkeys(findings)) or list(_compare_results(load(first), load(again)))


async def _play_twice(config: Config, first: Path, again: Path) -> None:
    """Play the run. Play its last sleep and what follows again, or its last evaluation if it has no sleep."""
    setup, model = set_up(config), FakeModel()
    steps = setup.plan()
    last = max((n for n, step in enumerate(steps) if isinstance(step, Sleep)), default=len(steps) - 1)
    async with setup.workers(config.run.in_flight) as pool:
        with open_new_run(setup, first) as directory:
            await _play(setup, model, directory, pool, steps[:last])
            shutil.copytree(first, again, ignore=shutil.ignore_patterns("lock"))
            await _play(setup, model, directory, pool, steps[last:])
        with RunDirectory.open_for_writing(again) as directory:
            await _play(set_up(config), model, directory, pool, steps[last:])
    await model.engine.close()


async def _play(
    setup: Setup, model: LocalModel, directory: RunDirectory, pool: WorkerPool, steps: Sequence[Step]
) -> None:
    """Play steps of a run. Raises `WorkerError` if an episode ended by an infrastructure error."""
    executor = Executor(directory, setup.method, Actor(setup.env, model, setup.config), pool)
    try:
        await executor.execute(unfinished_steps(steps, directory.read()))
    finally:
        run = directory.read()
        for played in (*run.trajectories(), *run.evaluations()):
            if played.termination.is_fault:
                raise WorkerError(f"{played.task} ended by {played.termination}: {played.fault}")


def _check_agent(setup: Setup, other: Setup, run: RunData) -> Iterator[str]:
    """Check that `initial` and `agent` return equal results for equal arguments and do not modify them."""
    if setup.method.initial() != other.method.initial():
        yield "initial: two calls returned different Policies"
    for played in (*run.trajectories(), *run.evaluations()):
        policy = run.policies.load(played.policy)
        before = msgspec.json.encode(policy)
        spec, *others = (
            method.agent(policy, played.task, setup.env, training=played.episode.startswith("train/"))
            for method in (setup.method, setup.method, other.method)
        )
        if others != [spec, spec]:
            yield "agent: two calls returned different ActorSpecs for the same policy and task"
        if msgspec.json.encode(policy) != before:
            yield "agent: changed the policy that was passed to it"


def _compare_results(first: RunData, again: RunData) -> Iterator[str]:
    """Yield the differences between the two results of the run."""
    instance = "a new instance of the method"
    newest = first.policies.versions()[-1]
    one, other = (msgspec.structs.asdict(run.policies.load(newest)) for run in (first, again))
    if differ := ", ".join(name for name in one if one[name] != other[name]):
        yield f"sleep: {instance} made another policy from the same records: {differ} of v{newest:04d} differ"
        return
    for played, repeated in zip(first.evaluations(), again.evaluations(), strict=True):
        turns = ([(turn.messages, turn.call) for turn in episode.turns] for episode in (played, repeated))
        if played.prompt_hash != repeated.prompt_hash:
            yield f"agent: {instance} gave the actor another prompt for the same policy and task"
        elif next(turns) != next(turns):
            yield f"play: {instance} played the same task differently with the same answers"


CALLS = 20
"""Number of requests of one agent: enough to try each of its tools in order."""

MODEL_CONFIG = ModelConfig(
    name="fake",
    tried="Answers are made up.",
    context=100_000,
    api="chat",
    base_url="http://localhost",
    roles=Roles(Role(string_tokens=100, max_calls=CALLS), Role(string_tokens=3000, max_calls=CALLS)),
    prices=Prices(0, 0, 0),
)

SKILL = 'def idea_{number}() -> str:\n    """Say a number."""\n    return "{number}"'
"""Half of all string arguments are this skill, so that programs written by agents are tried as well."""


class FakeModel(LocalModel):
    """Its answers depend on the conversation only, in any process. It sends no requests."""

    def __init__(self) -> None:
        super().__init__(MODEL_CONFIG)

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
        call = ToolCall(tool.name, _value(tool.parameters, self._texts[-1].split(), rng))
        self._answers += 1
        usage = Usage(prompt=len(said), completion=1)
        return Completion(text="Hm.", reasoning="", call=call, problem=None, usage=usage, seconds=0.0)

    def tell(self, text: str) -> None:
        self._texts.append(text)


def _value(schema: Schema, words: list[str], rng: random.Random) -> Any:
    """Make up a value for a schema. Strings are skills, their names, or words of the last message."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            return {name: _value(schema["properties"][name], words, rng) for name in schema["required"]}
        case "array":
            return [_value(schema["items"], words, rng)]
        case "string":
            skill, name = (text.format(number=rng.randrange(3)) for text in (SKILL, "idea_{number}"))
            return rng.choice([skill, skill, name, rng.choice(words or ["word"])])
        case "number":
            return rng.random()
        case "boolean":
            return rng.random() < 0.5
        case _:
            return rng.randrange(4)
