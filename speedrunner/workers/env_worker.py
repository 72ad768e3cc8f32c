"""The main process's interface to one worker: one tool call in, one result out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path

from envs import Opening, Outcome, Task
from serving.tokens.tools import ToolCall
from speedrunner.store.records import Module
from speedrunner.workers.sandbox.child_process import START_LIMIT_S
from speedrunner.workers.worker_messages import Execute, Executed, Fault, Load, Opened, Reply, Reset

RESET_LIMIT_S = 180.0
"""Seconds that an environment may take to start an episode."""

LOAD_LIMIT_S = 180.0
"""Seconds that a process for skills may take to start and read its module."""

GRACE_S = 6.0
"""Seconds after a call's time limit. A worker that has not stopped the call by then is killed with its
world."""


class WorkerError(Exception):
    """An episode cannot continue, for a reason other than the agent."""


class WorkerFault(WorkerError):
    """The environment raised an unexpected exception. `traceback` is the environment's."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


class WorkerDied(WorkerError):
    """The worker's process ended, or sent an invalid reply, in the middle of a request.

    Attributes:
        cause: how it ended, in words, if known.
    """

    def __init__(self, what: str, cause: str = "", log: Path | None = None) -> None:
        super().__init__(what + (f": {cause}" if cause else "") + (f"; see {log}" if log else ""))
        self.cause = cause


class WorkerTimedOut(WorkerDied):
    """The worker did not answer in time and was killed, because its environment hangs. No skill can cause
    this."""


class EnvWorker(ABC):
    """Plays one episode after another. After any error it must be closed.

    Attributes:
        outcome: the episode's outcome as of the worker's last reply; also readable after the worker's end.
    """

    outcome: Outcome | None = None
    _skills: Collection[str] = ()

    async def reset(self, task: Task, module: Module, action_limit: int | None, seed: str = "") -> Opening:
        """Start an episode.

        Args:
            task: the world.
            module: the skills that may be called.
            action_limit: primitive calls that advance the world; `None` for no limit.
            seed: seed of the skills' random numbers, see `speedrunner.store.stored_run.State.skill_seed`.

        Raises:
            WorkerFault: the environment, or the process of the skills, could not be started.
            WorkerDied: the process ended or hangs.
        """
        self._skills = module.public
        reply = await self.request(Reset(task, module, action_limit, seed), RESET_LIMIT_S)
        assert isinstance(reply, Opened)
        self.outcome = reply.outcome
        return reply.opening

    async def load(self, module: Module) -> None:
        """Continue the episode with the skills of this module and no others.

        If the module cannot be loaded, each call of its skills gets the error. The state of the previous
        skills is lost.

        Raises:
            WorkerFault: the process of the skills could not be started.
            WorkerDied: the process ended or hangs.
        """
        self._skills = module.public
        await self.request(Load(module), LOAD_LIMIT_S)

    async def execute(self, call: ToolCall, time_limit_s: float, action_limit: int | None = None) -> Executed:
        """Run one primitive or public skill. The model's mistakes are in the result, as `node.error`.

        Args:
            call: the call to run.
            time_limit_s: seconds after which the call is stopped. A skill's begin when its process is ready.
            action_limit: primitive calls that advance the world after which a skill is stopped; `None` for no
                limit.

        Raises:
            WorkerFault: the environment broke.
            WorkerTimedOut: the environment hangs and the worker was killed.
            WorkerDied: the process ended.
        """
        start_s = START_LIMIT_S if call.name in self._skills else 0.0
        limit_s = start_s + max(time_limit_s, 0.0) + GRACE_S
        reply = await self.request(Execute(call, time_limit_s, action_limit), limit_s)
        assert isinstance(reply, Executed)
        self.outcome = reply.outcome
        return reply

    @abstractmethod
    async def close(self) -> None:
        """End all processes, and first close the environment if it still answers. A second call does
        nothing."""

    @abstractmethod
    async def request(self, request: Reset | Load | Execute, limit_s: float | None) -> Reply:
        """Return the reply to a request. Raises `WorkerFault`, `WorkerDied`."""


def received(reply: Reply) -> Reply:
    """Return a reply that is not a fault. Raises `WorkerFault`."""
    if isinstance(reply, Fault):
        raise WorkerFault(reply.message, reply.traceback)
    return reply
