"""A worker in its creator's process: a terminal, a test, or the process behind a `ProcessWorker`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from envs import TextEnv
from speedrunner.workers.env_worker import EnvWorker, received
from speedrunner.workers.sandbox.child_process import ChildPool
from speedrunner.workers.sandbox.settings import Sandbox, SandboxError
from speedrunner.workers.worker_episode import WorkerEpisode, fault
from speedrunner.workers.worker_messages import (
    Execute,
    Finish,
    Load,
    Ready,
    Reply,
    Reset,
    decode_reply,
    encode_reply,
)


class LocalWorker(EnvWorker):
    """Plays the episodes of one environment. If the environment hangs or dies, so does this process. Skills
    run in the sandbox as usual. The environment's output goes to standard error.

    Args:
        env: the environment; closed at the end.
        sandbox: how skills are confined. Processes for them are started only if there are skills.
    """

    def __init__(self, env: TextEnv, sandbox: Sandbox = Sandbox()) -> None:  # noqa: B008 - immutable
        self._env = env
        self._pool = ChildPool(sandbox)
        self._has_skills = False
        self._episode: WorkerEpisode | None = None

    def answer(self, request: Reset | Load | Execute | Finish) -> Reply:
        """Execute a request; an error in it becomes a `Fault`."""
        try:
            match request:
                case Reset():
                    self.finish()
                    self._has_skills = bool(request.module.public)
                    self._episode = WorkerEpisode(self._env, self._pool, request)
                    return self._episode.opened
                case Load():
                    assert self._episode is not None
                    self._has_skills = bool(request.module.public)
                    self._episode.load(request.module)
                case Execute():
                    assert self._episode is not None
                    return self._episode.execute(request)
                case Finish():
                    self.finish()
            return Ready()
        except Exception as error:
            what = "the environment failed"
            if isinstance(request, Reset):
                what = f"task {request.task.name} {request.task.index} could not be started"
            elif isinstance(error, SandboxError):
                what = "skills cannot be run"
            return fault(error, what)

    def prepare(self) -> None:
        """Prepare for the next request while idle."""
        if self._has_skills:
            self._pool.refill()

    def finish(self) -> None:
        """Clean up after the episode."""
        if self._episode is not None:
            self._episode.close()
            self._episode = None

    def end(self) -> None:
        """End all processes and close the environment."""
        self.finish()
        self._pool.close()
        self._env.close()

    async def close(self) -> None:
        """End all processes and close the environment."""
        self.end()

    async def request(self, request: Reset | Load | Execute, limit_s: float | None) -> Reply:
        """Execute a request, without a time limit. Raises `WorkerFault`."""
        with redirect_stdout(sys.stderr):
            reply = decode_reply(encode_reply(self.answer(request)))  # as a reply from a process would be
            self.prepare()
        return received(reply)
