"""One episode in its worker: budgets, call tree, and the skills that act in the environment.

A wrong call is the agent's mistake and part of the reply. An error of the environment is a `Fault`.
"""

from __future__ import annotations

import hashlib
import itertools
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from envs import EnvironmentFault, EpisodeOver, InvalidPrimitiveCall, Primitive, TextEnv
from speedrunner.store.records import Module, Termination
from speedrunner.workers.call_tree import CallTree, EpisodeRoom
from speedrunner.workers.sandbox.channel import InvalidMessage
from speedrunner.workers.sandbox.child.run_skills import bound
from speedrunner.workers.sandbox.child.values import valid_text
from speedrunner.workers.sandbox.child_process import ChildPool
from speedrunner.workers.sandbox.isolation import SandboxError
from speedrunner.workers.sandbox.skill_process import Call, Ended, Refused, Skills
from speedrunner.workers.worker_messages import Execute, Executed, Fault, Opened, Reset


class EnvironmentBroke(Exception):
    """The environment raised an unexpected exception in a primitive, which the text names."""


class WorkerEpisode:
    """One episode: the world, its budget of actions, and the library that may act in it.

    Skills run in a child process and ask this object for primitives.
    """

    def __init__(self, env: TextEnv, pool: ChildPool, request: Reset) -> None:
        self._env = env
        self._pool = pool
        self._seed = request.seed
        self._loads = itertools.count()
        self._action_limit = request.action_limit
        self._actions = 0
        self._call_limit: int | None = None
        self._call_actions = 0
        self._observation: str | None = None
        self._room = EpisodeRoom()
        self.tree = CallTree("", "tool", {}, self._room)
        self._primitives = {primitive.name: primitive for primitive in env.primitives}
        self._skills: Skills | None = None
        if request.module.public:
            pool.refill()  # while the world is created
        self.opened = Opened(env.reset(request.task), env.outcome())
        self.load(request.module)

    def load(self, module: Module) -> None:
        """Continue with the skills of this module and no others, in a new process.

        Raises `SandboxError`: no process for skills starts.
        """
        self.close()
        self._public = module.public
        if module.public:
            number = next(self._loads)  # so that later skills draw other random numbers
            seed = hashlib.sha256(f"{self._seed} {number}".encode()).hexdigest()
            self._skills = Skills(self._pool, module, list(self._primitives), seed, self.call)

    def execute(self, request: Execute) -> Executed:
        """Run one tool call. Every mistake in it is recorded in its node.

        Raises:
            EnvironmentBroke: the environment failed.
            SandboxError: no process for skills starts.
        """
        name, arguments = request.call.name, request.call.arguments
        self._observation = None
        self._call_limit, self._call_actions = request.action_limit, 0
        ended = self._run(name, arguments, request.time_limit_s)
        self.tree.end(0, ended.result, ended.error, ended.omitted)
        outcome = self._env.outcome()
        termination = Termination.ACTION_LIMIT if self._out_of_actions else None
        if self._env.done:
            termination = Termination.SUCCESS if outcome.success else Termination.FAILURE
        return Executed(
            node=self.tree.root,
            observation=self._observation,
            free_observation=self._env.free_observation(),
            outcome=outcome,
            actions=self._actions,
            termination=termination,
        )

    def close(self) -> None:
        """End the skills' process."""
        if self._skills is not None:
            self._skills.close()
            self._skills = None

    def call(self, asked: Call) -> str | Refused | None:
        """Run a primitive for a skill, and record it."""
        if (primitive := self._primitives.get(asked.name)) is None:
            raise InvalidMessage(f"the call of a primitive that is none ({asked.name[:80]!r})")
        refused = self._refusal(primitive)
        if refused is None and primitive.advances and self._call_actions == self._call_limit:
            text = f"stopped at the limit of {self._call_limit} actions in one call"
            refused = Refused("CallActionLimitReached", text, final=True)
        if refused is not None:
            return refused
        arguments, problem = _bound(primitive, asked.args, asked.kwargs)
        began = time.perf_counter()
        answer = problem or self._act(primitive, arguments)
        seconds = time.perf_counter() - began
        acted = primitive.advances and not isinstance(answer, Refused)
        outcome = _outcome(answer)
        self.tree.add(primitive.name, arguments, *outcome, seconds=seconds, acted=acted, line=asked.line)
        return answer

    def _run(self, name: str, arguments: Mapping[str, Any], limit_s: float) -> Ended:
        """Run the actor's call."""
        if name in self._public and self._skills is not None:
            self.tree = CallTree(name, "skill", arguments, self._room)
            return self._skills.run(name, arguments, limit_s, self.tree)
        if (primitive := self._primitives.get(name)) is None:
            self.tree = CallTree(name, "tool", arguments, self._room)
            names = ", ".join([*self._primitives, *self._public])
            return Ended(None, f"LookupError: there is no tool {name[:80]!r}; available: {names}")
        if (refused := self._refusal(primitive)) is not None:
            self.tree = CallTree(name, "tool", arguments, self._room)
            return Ended(*_outcome(refused))
        arguments, problem = _bound(primitive, (), arguments)
        self.tree = CallTree(name, "primitive", arguments, self._room)
        answer = problem or self._act(primitive, arguments)
        if primitive.advances and not isinstance(answer, Refused):
            self.tree.count_action()
        return Ended(*_outcome(answer))

    def _act(self, primitive: Primitive, arguments: Mapping[str, Any]) -> str | Refused | None:
        try:
            text = self._env.call(primitive.name, **arguments)
        except InvalidPrimitiveCall as error:
            return Refused("InvalidPrimitiveCall", str(error))
        except EpisodeOver as error:
            return Refused("EpisodeEnded", str(error), final=True)
        except BaseException as error:
            raise EnvironmentBroke(primitive.name) from error
        if primitive.advances:
            self._actions += 1
            self._call_actions += 1
        if text is not None:  # an action of Crafter returns None, and leaves the actor what it read last
            self._observation = text
        return text

    def _refusal(self, primitive: Primitive) -> Refused | None:
        if self._env.done:
            text = "stopped because the environment has ended the episode"
            return Refused("EpisodeEnded", text, final=True)
        if primitive.advances and self._out_of_actions:
            text = f"stopped at the limit of {self._action_limit} actions"
            return Refused("ActionLimitReached", text, final=True)
        return None

    @property
    def _out_of_actions(self) -> bool:
        return self._action_limit is not None and self._actions >= self._action_limit


def _bound(
    primitive: Primitive, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Refused | None]:
    """Return a call's arguments by parameter name; if they do not fit, none and the reason."""
    try:
        return bound(primitive.name, primitive.signature, args, kwargs), None
    except TypeError as error:
        return {}, Refused("TypeError", str(error))


def _outcome(answer: str | Refused | None) -> tuple[str | None, str | None]:
    """Return the result and the error to record."""
    return (None, f"{answer.kind}: {answer.text}") if isinstance(answer, Refused) else (answer, None)


def fault(error: BaseException, what: str) -> Fault:
    """Describe an error that is not the agent's mistake."""
    meant = isinstance(error, EnvironmentFault | SandboxError)
    reason = str(error) if meant else f"{type(error).__name__}: {error}"
    return Fault(valid_text(f"{what}: {reason}"), valid_text("".join(traceback.format_exception(error))))
