"""The fork server: one process that has loaded an environment, and is forked for each worker.

The loaded modules are in memory once, and no worker waits for them to load. Workers are not its children.
They are children of the owner, as if the owner had started them: the owner reaps them, they end with the
owner, and they outlive the fork server.

Measured on two busy cores: a Crafter worker starts in 14 ms and takes 7 MB of its own in an episode. As a
separate process it would start in 3.3 s and take 166 MB; BabyAI: 10 ms and 5 MB, or 1 s and 42 MB. The
standard library's `multiprocessing.forkserver` is no replacement. There is one for a whole process, not one
for each environment and hash seed; its workers are its children, so its death ends them all, or makes them
orphans that the owner takes for dead; and each Crafter worker takes 37 MB of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from speedrunner.config.schema import SandboxConfig
from speedrunner.store.files import open_log
from speedrunner.workers.env_worker import BEGIN_LIMIT_S, CLOSE_LIMIT_S, EnvWorker, WorkerDied, WorkerError
from speedrunner.workers.sandbox.child_process import describe_exit
from speedrunner.workers.sandbox.isolation import FIRST_VICTIM
from speedrunner.workers.worker_messages import PID, Start

PROGRAM = "speedrunner.workers.fork_server_process"

FORK_LIMIT_S = 20.0
"""Seconds that a fork may take; it normally takes milliseconds."""


class ForkServer:
    """The fork server's process, which starts to load at once.

    Args:
        env: name of the environment, as for `envs.make`.
        log: file to which its error stream and its workers' are appended; `None` to drop them.
    """

    def __init__(self, env: str, log: Path | None = None) -> None:
        self._env = env
        self._log = log
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._control, theirs = socket.socketpair()
        with theirs, open_log(log) if log else Path(os.devnull).open("ab") as errors:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                [*FIRST_VICTIM, sys.executable, "-P", "-m", PROGRAM, env, str(fd), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                pass_fds=[fd],
                start_new_session=True,  # so that a terminal's Ctrl-C does not reach it
            )

    async def loaded(self) -> Self:
        """Wait until the environment is loaded.

        Raises `WorkerDied`: the process ended or hangs.
        """
        self._control.setblocking(False)
        try:
            async with asyncio.timeout(BEGIN_LIMIT_S):
                report = await asyncio.get_running_loop().sock_recv(self._control, PID.size)
        except TimeoutError:
            self.end(0)
            raise WorkerDied(f"loading {self._env} took more than {BEGIN_LIMIT_S:g} s") from None
        except BaseException:
            self.end(0)
            raise
        if not report:
            raise self._describe_end()
        self._control.settimeout(FORK_LIMIT_S)
        return self

    @property
    def usable(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    async def worker(self, options: Mapping[str, Any], sandbox: SandboxConfig) -> EnvWorker:
        """Return a new worker with its environment created from the options.

        Raises:
            WorkerFault: the environment could not be created.
            WorkerDied: the worker or the fork server ended or hangs.
            WorkerError: the machine cannot start a process now.
        """
        worker = await self._fork()
        try:
            await worker.request(Start(self._env, dict(options), sandbox), BEGIN_LIMIT_S)
        except BaseException:
            worker.kill()
            raise
        return worker

    async def _fork(self) -> EnvWorker:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise WorkerError(f"cannot start a worker of {self._env}: {error.strerror}") from error
        with theirs:
            loop = asyncio.get_running_loop()
            worker = EnvWorker(self._env, self._log)
            await loop.create_unix_connection(lambda: worker, sock=ours)
            try:  # without await in between, so that no forked process is lost
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
                (worker.pid,) = PID.unpack(self._control.recv(PID.size))
            except (OSError, struct.error):
                worker.transport.close()
                raise self._describe_end() from None
            if worker.pid < 0:
                worker.transport.close()
                raise WorkerError(f"cannot start a worker of {self._env}: {os.strerror(-worker.pid)}")
        return worker

    def end(self, patience_s: float = CLOSE_LIMIT_S) -> None:
        """End the fork server, which gets `patience_s` to end by itself. Its workers continue."""
        with suppress(OSError):  # it may have been ended before
            self._control.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with self._control, suppress(OSError):
            late = self._control.recv(PID.size)
            if late and (pid := PID.unpack(late)[0]) > 0:  # forked after its limit: our child, too
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _describe_end(self) -> WorkerDied:
        self.end()
        what = f"the process that loads {self._env} for its workers ended"
        return WorkerDied(what, describe_exit(self._process.returncode), self._log)
