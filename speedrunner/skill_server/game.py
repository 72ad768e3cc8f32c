"""The content of a server: an environment, the skills of a stored library, and the limits of an episode."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from envs import Opening, Task, TextEnv
from serving.tokens.tools import ToolSpec
from speedrunner.agents.actor import ActorSpec
from speedrunner.config.named import choose_task
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.library.library import Library
from speedrunner.runs.setup import make_env
from speedrunner.runs.stored_policy import find_policy
from speedrunner.runs.stored_setup import compose_stored
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.stored_run import State
from speedrunner.workers.sandbox.child_process import require
from speedrunner.workers.sandbox.isolation import sandbox_limits
from speedrunner.workers.worker_pool import WorkerPool

START = "start_episode"
"""The tool that begins an episode."""


@dataclass(frozen=True)
class Game:
    """An environment and a library, as the actor of a run has them.

    Attributes:
        env: only its rules are read; episodes run in workers.
        spec: the actor's tools and system prompt.
        task: the task of an episode if the client names none.
        state: the run's, for the seeds of skills.
    """

    config: Config
    env: TextEnv
    spec: ActorSpec
    task: Task
    state: State

    @cached_property
    def start_tool(self) -> ToolSpec:
        """Return the tool that begins an episode."""
        kind = inspect.Parameter.KEYWORD_ONLY
        defaults = {"task": self.task.name, "index": self.task.index}
        parameters = [
            inspect.Parameter(name, kind, default=value, annotation=type(value))
            for name, value in defaults.items()
        ]
        doc = (
            f"Start an episode of {self.env.name} and return its task. A running one is dropped. task: the"
            " name of the task. index: its world seed or variation."
        )
        return ToolSpec.from_signature(START, inspect.Signature(parameters), doc)

    @cached_property
    def tools(self) -> dict[str, ToolSpec]:
        """Return the actor's tools by name: primitives, public skills, and `submit_answer` if the environment
        wants it."""
        return {tool.name: tool for tool in self.spec.list_tools(self.env)}

    @property
    def instructions(self) -> str:
        """Return the actor's system prompt, and how to begin."""
        system = self.spec.messages(self.env, Opening("", ""))[0].content
        return f"{system}\n\nCall {START} first: its result is your task. Call it again for another episode."

    def workers(self, size: int) -> WorkerPool:
        """Create workers of the environment."""
        env = self.config.env
        return WorkerPool(size, env.name, env.options, None, sandbox_limits(self.config.sandbox))


def make_game(config: Config) -> Game:
    """Return an environment without skills.

    Raises:
        EnvironmentFault: the environment does not exist, or `task.name` is missing and it has no split.
    """
    env = make_env(config)
    env.close()
    return Game(config, env, ActorSpec(Library(env.primitives)), choose_task(config), State())


def load_game(source: str, overrides: Sequence[str], trust: Collection[str]) -> Game:
    """Load a stored library and the environment that it plays.

    Args:
        source: `RUN` or `RUN:VERSION`.
        overrides: settings that differ from the run's own, such as `env=babyai` or `task.index=7`.
        trust: names of foreign classes that the run may use.

    Raises:
        RunDirectoryError: the run or the version does not exist.
        InvalidPolicy: the library is damaged, or does not fit the environment.
        EnvironmentFault, InvalidConfig: the environment or a setting does not exist.
        SandboxUnavailable: skills cannot be isolated on this machine.
    """
    run, version = find_policy(source)
    config = compose_stored(run, overrides, trust, ("env.name",))
    env = make_env(config)
    env.close()
    policy = run.policies.load(version)
    try:
        library = Library(env.primitives).of(policy, trusted=False)
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{run.path}: {error}") from error
    spec = ActorSpec(library, policy.notes).with_part(config.library)
    if any(tool.name == START for tool in spec.list_tools(env)):
        raise InvalidConfig(
            f"{run.path}:{version} has a tool named {START}, which is the name of the server's own tool:"
            " rename it"
        )
    require(sandbox_limits(config.sandbox))
    return Game(config, env, spec, choose_task(config), run.state)
