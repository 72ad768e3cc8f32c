"""Hosts as the main process sees them: one tool call in, one result out, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

import envs.registry
from envs import Opening, Outcome, Task
from speedrunner.hosts.memory import available_mb
from speedrunner.hosts.messages import (
    FRAME_LIMIT,
    HEADER,
    REPLIES,
    Execute,
    Executed,
    Fault,
    Finish,
    Opened,
    Reply,
    Request,
    Reset,
    Start,
    pack,
)
from speedrunner.library.library import Library
from speedrunner.records import ToolCall
from speedrunner.sandbox.limits import Sandbox
from speedrunner.sandbox.process import require

START_LIMIT_S = 180.0
"""Seconds that a host may take to import and make its environment."""

RESET_LIMIT_S = 180.0
"""Seconds that an environment may take to begin an episode."""

GRACE_S = 3.0
"""Seconds after a call's time limit until a host that has not stopped the call is killed with its world."""

CLOSE_LIMIT_S = 3.0
"""Seconds that an idle host may take to close its environment."""

SKILLS_MB = 30
"""Memory of a host's two sandboxed processes, one of them spare, before the skills in them ask for more."""


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


class TooManyHosts(HostError):
    """The machine has not the memory for as many hosts as were asked for."""


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
        """Whether the host can begin another episode."""
        return self._status is None and not self._busy

    async def reset(self, task: Task, library: Library, action_limit: int | None) -> Opening:
        """Begin an episode.

        Args:
            task: the world.
            library: the skills that may be called.
            action_limit: primitive calls that advance the world; `None` for no limit.

        Raises:
            HostFault: the environment, or the library's module, could not be brought up.
            HostDied: the process ended or hangs.
        """
        public = tuple(each.name for each in library.public)
        private = tuple(each.name for each in library.skills if not each.public)
        request = Reset(task, library.module_source(), public, private, action_limit)
        reply = await self._request(request, RESET_LIMIT_S)
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
                reply = await self._receive()
        except TimeoutError:
            self.kill()
            raise HostTimedOut(
                f"the host of {self._env} did not answer {what} within {limit_s:g} s and was killed"
            ) from None
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            self.kill()
            raise HostDied(f"the host of {self._env} died during {what}: {self._cause(error)}") from error
        if isinstance(reply, Fault):
            raise HostFault(reply.message, reply.traceback)
        self._busy = False
        return reply

    async def _receive(self) -> Reply:
        (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        if size > FRAME_LIMIT:
            raise msgspec.DecodeError(f"a reply of {size} bytes was announced")
        return REPLIES.decode(await self._reader.readexactly(size))

    def _cause(self, error: Exception) -> str:
        if isinstance(error, msgspec.MsgspecError):
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
            [sys.executable, "-P", "-m", "speedrunner.hosts.process", str(fd), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            pass_fds=[fd],
            start_new_session=True,
        )


def _require_memory(env: str, hosts: int) -> None:
    """Refuse hosts that would have to swap. Raises `UnknownEnvironment`, `TooManyHosts`."""
    each, available = envs.registry.memory_mb(env) + SKILLS_MB, available_mb()
    if hosts * each <= available:
        return
    fit = available // each
    remedy = f"set run.in_flight to {fit} or less" if fit else "free some, or take a larger machine"
    raise TooManyHosts(
        f"{hosts} hosts of {env} take up to {hosts * each:,} MB of memory, {each} MB each, and"
        f" {available:,} MB are available: {remedy}"
    )


class HostPool:
    """A fixed number of warm hosts of one environment. An async context manager.

    Args:
        size: hosts, each of which plays one episode at a time.
        env: name of the environment, as for `envs.make`.
        options: the environment's.
        log: file to which the error streams of all hosts are appended; `None` to drop them.
        sandbox: how skills are confined.
    """

    def __init__(
        self,
        size: int,
        env: str,
        options: Mapping[str, Any] | None = None,
        log: Path | None = None,
        sandbox: Sandbox = Sandbox(),  # noqa: B008 - immutable
    ) -> None:
        self._env = env
        self._options = dict(options or {})
        self._log = log
        self._sandbox = sandbox
        self._hosts: dict[int, Host] = {}  # by slot
        self._free: asyncio.LifoQueue[int] = asyncio.LifoQueue()  # the last used is the warmest
        self._slots = range(size)
        self._starting = asyncio.Semaphore(os.cpu_count() or 1)

    async def __aenter__(self) -> Self:
        """Start all hosts.

        Raises:
            UnknownEnvironment: there is no such environment.
            TooManyHosts: they would not fit into the machine's memory; none is started.
            HostError: one did not start.
            SandboxUnavailable: skills cannot be confined in this way on this machine.
        """
        require(self._sandbox)
        _require_memory(self._env, len(self._slots))
        starts = [asyncio.create_task(self._start(slot)) for slot in self._slots]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self._close()
            raise
        for slot in self._slots:
            self._free.put_nowait(slot)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @asynccontextmanager
    async def host(self) -> AsyncIterator[Host]:
        """Lend a host for one episode, as soon as one is free. A dead or interrupted one is replaced.

        Raises:
            HostError: a replacement did not start; the next one is tried afresh.
        """
        slot = await self._free.get()
        try:
            host = self._hosts.get(slot)
            if host is None or not host.usable:
                host = await self._start(slot)
            yield host
        finally:
            if (used := self._hosts.get(slot)) is not None:
                if used.usable:
                    used.finish()
                else:  # an interrupted call would go on running: it ends with its host
                    used.kill()
            self._free.put_nowait(slot)

    async def _start(self, slot: int) -> Host:
        async with self._starting:
            self._hosts[slot] = await Host.start(self._env, self._options, self._log, self._sandbox)
        return self._hosts[slot]

    async def _close(self) -> None:
        try:
            await asyncio.gather(*(host.close() for host in self._hosts.values()))
        finally:
            for host in self._hosts.values():
                host.kill()
