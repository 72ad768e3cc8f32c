"""The main process's interface to one worker: one tool call in, one result out. Closing it leaves nothing
behind."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec

from envs import Opening, Outcome, Task
from serving.tokens.tools import ToolCall
from speedrunner.store.records import Module
from speedrunner.workers.sandbox.child_process import START_LIMIT_S, describe_exit
from speedrunner.workers.worker_messages import (
    LENGTH,
    REPLIES,
    Execute,
    Executed,
    Fault,
    Finish,
    Load,
    Opened,
    Reply,
    Request,
    Reset,
    pack,
)

BEGIN_LIMIT_S = 180.0
"""Seconds for loading an environment, creating one, starting an episode, and changing its skills."""

GRACE_S = 6.0
"""Seconds after a call's time limit. A worker that has not stopped the call by then is killed with its
world."""

CLOSE_LIMIT_S = 3.0
"""Seconds that an idle worker may take to close its environment."""


class WorkerError(Exception):
    """An episode cannot continue, for a reason other than the agent."""


class WorkerFault(WorkerError):
    """The environment raised an unexpected exception. `traceback` is the environment's."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


class WorkerDied(WorkerError):
    """The worker's process ended, or sent an invalid reply, in the middle of a request.

    Args:
        cause: how it ended, in words, if known.
    """

    def __init__(self, what: str, cause: str = "", log: Path | None = None) -> None:
        super().__init__(what + (f": {cause}" if cause else "") + (f"; see {log}" if log else ""))


class EnvWorker(asyncio.Protocol):
    """Plays one episode after another, in a child process of this one forked by the fork
    server. It is our end of the socket to that process. After any error it must be closed.

    Args:
        env: name of its environment.
        log: file of its error stream, if any.

    Attributes:
        pid: id of the process, which leads its own session and group. The fork server sets it.
        transport: the transport of the socket.
        outcome: the episode's outcome as of the worker's last reply; also readable after the worker's end.
    """

    def __init__(self, env: str, log: Path | None) -> None:
        self.pid = 0
        self.outcome: Outcome | None = None
        self._skills: tuple[str, ...] = ()
        self._env = env
        self._log = log
        self._received = bytearray()
        self._reply: asyncio.Future[Reply] | None = None
        self._busy = False
        self._status: int | None = None

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
        reply = await self.request(Reset(task, module, action_limit, seed), BEGIN_LIMIT_S)
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
        await self.request(Load(module), BEGIN_LIMIT_S)

    async def execute(self, call: ToolCall, time_limit_s: float, action_limit: int | None = None) -> Executed:
        """Run one primitive or public skill. The model's mistakes are in the result, as `node.error`.

        Args:
            call: the call to run.
            time_limit_s: seconds after which the call is stopped. A skill's begin when its process is ready.
            action_limit: primitive calls that advance the world after which a skill is stopped; `None` for no
                limit.

        Raises:
            WorkerFault: the environment broke.
            WorkerDied: the process ended, or the environment hangs and the worker was killed.
        """
        start_s = START_LIMIT_S if call.name in self._skills else 0.0
        limit_s = start_s + max(time_limit_s, 0.0) + GRACE_S
        reply = await self.request(Execute(call, time_limit_s, action_limit), limit_s)
        assert isinstance(reply, Executed)
        self.outcome = reply.outcome
        return reply

    @property
    def usable(self) -> bool:
        """Whether the worker can start another episode: it has not failed, and its process is alive."""
        if self._status is not None or self._busy:
            return False
        # WNOWAIT leaves it unreaped, so that `kill` cannot hit another process with the same id.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def finish(self) -> None:
        """Report the end of the episode, so that nothing of its skills remains; `reset` may follow."""
        if self.usable:
            self.transport.write(pack(Finish()))

    async def close(self) -> None:
        """End the process. An idle one may close its environment first."""
        try:
            if self.usable:
                with suppress(OSError):  # such as a TimeoutError
                    self.transport.write_eof()
                    async with asyncio.timeout(CLOSE_LIMIT_S):
                        await self._end
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and all processes that it started, at once."""
        if self._status is not None:
            return
        for end in (os.kill, os.killpg):  # it may not have created its own group yet
            with suppress(ProcessLookupError):
                end(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self._status = os.waitstatus_to_exitcode(status)
        self.transport.close()
        if self._reply is not None:
            self._limit.cancel()
            self._reply = None

    async def request(self, request: Request, limit_s: float) -> Reply:
        """Send a request and wait for its first reply. An interruption leaves the worker unusable.

        Raises:
            WorkerFault: the environment broke.
            WorkerDied: the process ended, or did not answer in time and was killed. No skill can cause the
                latter.
        """
        what = request.call.name if isinstance(request, Execute) else type(request).__name__.lower()
        if not self.usable:
            raise WorkerDied(f"the worker of {self._env} (process {self.pid}) is no longer usable")
        self._busy = True
        self.transport.write(pack(request))
        try:
            reply = await self._next_reply(limit_s)
        except TimeoutError:
            self.kill()
            raise WorkerDied(
                f"the worker of {self._env} did not answer {what} within {limit_s:g} s and was killed"
            ) from None
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            self.kill()
            sent = f"it sent no valid reply ({error})" if isinstance(error, msgspec.MsgspecError) else None
            cause = sent or describe_exit(self._status or 0)
            raise WorkerDied(f"the worker of {self._env} died during {what}", cause, self._log) from error
        if isinstance(reply, Fault):
            raise WorkerFault(reply.message, reply.traceback)
        self._busy = False
        return reply

    def _next_reply(self, limit_s: float) -> asyncio.Future[Reply]:
        """Return the future reply. It raises `MsgspecError` for an invalid reply, such as one with an
        impossible score, `OSError` or `EOFError` if the worker has closed its end, or is gone, and
        `TimeoutError`."""
        loop = asyncio.get_running_loop()
        self._reply = reply = loop.create_future()
        self._limit = loop.call_later(limit_s, self._fail, TimeoutError())
        if self.transport.is_closing():
            self._fail(EOFError())
        return reply

    def _fail(self, error: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._limit.cancel()
            self._reply.set_exception(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast(asyncio.Transport, transport)
        self._end = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Read a reply. The connection ends if more arrives, which could answer the next request."""
        received, reply = self._received, self._reply
        if reply is None or reply.done():
            self.transport.abort()
            return
        received += data
        if len(received) < LENGTH.size:
            return
        end = LENGTH.size + LENGTH.unpack_from(received)[0]
        if len(received) >= end:
            self._limit.cancel()
            try:
                reply.set_result(REPLIES.decode(received[LENGTH.size : end]))
            except msgspec.MsgspecError as error:
                reply.set_exception(error)
            if len(received) > end:
                self.transport.abort()
            received.clear()

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._fail(error or EOFError())
        if not self._end.done():
            self._end.set_result(None)
