"""A worker in a separate process, forked by `speedrunner.workers.fork_server`. Closing it leaves nothing
behind."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec

from speedrunner.workers.env_worker import EnvWorker, WorkerDied, WorkerTimedOut, received
from speedrunner.workers.worker_messages import (
    Execute,
    Finish,
    Reply,
    Request,
    pack,
    read_reply,
)

CLOSE_LIMIT_S = 3.0
"""Seconds that an idle worker may take to close its environment."""


class ProcessWorker(EnvWorker):
    """A child process of this one.

    Args:
        env: name of its environment.
        log: file of its error stream, if any.
        pid: id of the process, which leads its own session and group.
        reader: reader of the socket to it.
        writer: writer of the same socket.
    """

    def __init__(
        self,
        env: str,
        log: Path | None,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.pid = pid
        self._env = env
        self._log = log
        self._reader = reader
        self._writer = writer
        self._busy = False
        self._status: int | None = None

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
            self._writer.write(pack(Finish()))

    async def close(self) -> None:
        """End the process. An idle one may close its environment first."""
        try:
            if self.usable:
                with suppress(TimeoutError, OSError):
                    async with asyncio.timeout(CLOSE_LIMIT_S):
                        self._writer.write_eof()
                        await self._reader.read()  # until the process has closed its end
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
        self._writer.close()

    async def request(self, request: Request, limit_s: float | None) -> Reply:
        """Send a request and wait for its first reply. An interruption leaves the worker unusable.

        Raises:
            WorkerFault, WorkerDied, WorkerTimedOut: as in `EnvWorker`.
        """
        what = request.call.name if isinstance(request, Execute) else type(request).__name__.lower()
        if not self.usable:
            raise WorkerDied(f"the worker of {self._env} (process {self.pid}) is no longer usable")
        self._busy = True
        self._writer.write(pack(request))
        reply = await self.receive(limit_s, what)
        self._busy = False
        return reply

    async def receive(self, limit_s: float | None, what: str) -> Reply:
        """Wait at most `limit_s` seconds for the reply to the request `what`. Raises as `request`."""
        try:
            async with asyncio.timeout(limit_s):
                await self._writer.drain()
                reply = await read_reply(self._reader)
        except TimeoutError:
            self.kill()
            raise WorkerTimedOut(
                f"the worker of {self._env} did not answer {what} within {limit_s:g} s and was killed"
            ) from None
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            self.kill()
            sent = f"it sent no valid reply ({error})" if isinstance(error, msgspec.MsgspecError) else None
            cause = sent or describe_exit(self._status or 0)
            raise WorkerDied(f"the worker of {self._env} died during {what}", cause, self._log) from error
        return received(reply)


def describe_exit(status: int) -> str:
    """Describe the exit status of a process in words; a negative one is a signal's."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
