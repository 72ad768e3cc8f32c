"""One host as the main process sees it: one tool call in, one result out, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from envs import Opening, Outcome, Task
from speedrunner.hosts.messages import (
    Execute,
    Executed,
    Fault,
    Finish,
    InvalidReply,
    Opened,
    Reply,
    Request,
    Reset,
    Start,
    pack,
    read_reply,
)
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.records import Module, ToolCall

START_LIMIT_S = 180.0
"""Seconds that a host may take to import and make its environment."""

RESET_LIMIT_S = 180.0
"""Seconds that an environment may take to begin an episode."""

GRACE_S = 3.0
"""Seconds after a call's time limit until a host that has not stopped the call is killed with its world."""

CLOSE_LIMIT_S = 3.0
"""Seconds that an idle host may take to close its environment."""


class HostError(Exception):
    """An episode cannot go on for a reason that is not the agent's."""


class HostFault(HostError):
    """The environment raised something that it should not. `traceback` is its own."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


class HostDied(HostError):
    """The host's process ended, or said something unintelligible, in the middle of a request."""


class HostTimedOut(HostDied):
    """The host did not answer in time and was killed: its environment hangs. No skill brings that about."""


class Host:
    """One host process. It plays one episode after another; after any error it must be closed.

    Attributes:
        outcome: how the episode stood at the host's last reply; also readable after the host's death.
    """

    def __init__(
        self,
        env: str,
        log: Path | None,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.outcome: Outcome | None = None
        self._env = env
        self._log = log
        self._process = process
        self._reader = reader
        self._writer = writer
        self._busy = False
        self._status: int | None = None

    @classmethod
    async def start(
        cls,
        env: str,
        options: Mapping[str, Any],
        log: Path | None = None,
        sandbox: Sandbox = Sandbox(),  # noqa: B008 - immutable
    ) -> Host:
        """Start a host and make its environment.

        Args:
            env: name of the environment, as for `envs.make`.
            options: the environment's.
            log: file to which the process's error stream is appended; `None` to drop it.
            sandbox: how skills are confined.

        Raises:
            HostFault: the environment could not be made.
            HostDied: the process ended or hangs.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            host = cls(env, log, _spawn(theirs.fileno(), log), reader, writer)
        try:
            await host._request(Start(env, dict(options), sandbox), START_LIMIT_S)
        except BaseException:
            host.kill()
            raise
        return host

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether the host can begin another episode: it has not failed, and its process lives."""
        if self._status is not None or self._busy:
            return False
        # Without reaping it, so that `kill` cannot meet another process of the same number.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    async def reset(self, task: Task, module: Module, action_limit: int | None) -> Opening:
        """Begin an episode.

        Args:
            task: the world.
            module: the skills that may be called.
            action_limit: primitive calls that advance the world; `None` for no limit.

        Raises:
            HostFault: the environment, or the library's module, could not be brought up.
            HostDied: the process ended or hangs.
        """
        reply = await self._request(Reset(task, module, action_limit), RESET_LIMIT_S)
        assert isinstance(reply, Opened)
        self.outcome = reply.outcome
        return reply.opening

    async def execute(self, call: ToolCall, time_limit_s: float) -> Executed:
        """Run one primitive or public skill. The model's mistakes are in the result, as `node.error`.

        Args:
            call: what to run.
            time_limit_s: seconds, after which the call is stopped where it stands.

        Raises:
            HostFault: the environment broke.
            HostTimedOut: the environment hangs and the host was killed.
            HostDied: the process ended.
        """
        reply = await self._request(Execute(call, time_limit_s), max(time_limit_s, 0.0) + GRACE_S)
        assert isinstance(reply, Executed)
        self.outcome = reply.outcome
        return reply

    def finish(self) -> None:
        """Say that the episode is over, so that nothing of its skills stays; `reset` may follow."""
        if self.usable:
            self._writer.write(pack(Finish()))

    async def close(self) -> None:
        """End the process: an idle one may close its environment first. Calling it twice is harmless."""
        try:
            if self.usable:
                with suppress(TimeoutError, OSError):
                    async with asyncio.timeout(CLOSE_LIMIT_S):
                        self._writer.write_eof()
                        await self._reader.read()  # until the process has closed its end
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and what it started, at once."""
        if self._status is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._status = self._process.wait()
        self._writer.close()

    async def _request(self, request: Request, limit_s: float) -> Reply:
        """Send a request and wait for its reply. Whatever interrupts this leaves the host unusable."""
        if not self.usable:
            raise HostDied(f"the host of {self._env} (process {self.pid}) is no longer usable")
        self._busy = True
        what = request.call.name if isinstance(request, Execute) else type(request).__name__.lower()
        try:
            async with asyncio.timeout(limit_s):
                self._writer.write(pack(request))
                await self._writer.drain()
                reply = await read_reply(self._reader)
        except TimeoutError:
            self.kill()
            raise HostTimedOut(
                f"the host of {self._env} did not answer {what} within {limit_s:g} s and was killed"
            ) from None
        except (OSError, EOFError, InvalidReply) as error:
            self.kill()
            raise HostDied(f"the host of {self._env} died during {what}: {self._cause(error)}") from error
        if isinstance(reply, Fault):
            raise HostFault(reply.message, reply.traceback)
        self._busy = False
        return reply

    def _cause(self, error: Exception) -> str:
        if isinstance(error, InvalidReply):
            return f"it sent no valid reply ({error})"
        status = self._status or 0
        cause = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return f"{cause}; see {self._log}" if self._log is not None else cause


def _spawn(fd: int, log: Path | None) -> subprocess.Popen[bytes]:
    """Start a host in a session of its own, so that a terminal's Ctrl-C does not reach it and its whole
    group can be killed."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
        "PYTHONHASHSEED": "0",  # the order of sets in environments must repeat
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with Path(os.devnull if log is None else log).open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "speedrunner.hosts.host_process", str(fd), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            pass_fds=[fd],
            start_new_session=True,
        )
