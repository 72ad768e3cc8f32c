"""One sandboxed process: started, used, and ended without leaving anything behind."""

from __future__ import annotations

import functools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from speedrunner.config.schema import SandboxConfig
from speedrunner.workers.sandbox import child
from speedrunner.workers.sandbox.channel import Channel, ChannelError, Said
from speedrunner.workers.sandbox.isolation import (
    FIRST_VICTIM,
    INSTEAD,
    SandboxError,
    bubblewrap_command,
    interpreter,
)

MIB = 2**20

LIMITS = {
    "CPU": 3_600,  # seconds, twice the paper's wall clock of an episode; the worker's limits are lower
    "NOFILE": 64,
    "CORE": 1,  # byte, too little for a file; and no program can be started to receive the core
    "SIGPENDING": 0,
}
"""Resource limits of each process by the kernel's names, in addition to its address space. The process sets
them itself before it runs untrusted code."""

START_LIMIT_S = 60.0
"""Seconds within which a process must be ready. No skill's time counts before that."""

END_LIMIT_S = 1.0
"""Seconds that the kernel may take to remove a killed process."""

FOR_GROUPS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
"""Signals that terminals and batch systems send to all processes; the owner decides what ends then."""

CODE = Path(child.__file__).parent
"""Folder of the code that runs inside with the untrusted code."""

PROGRAM = "import sys; sys.path.append(sys.argv[1]); from child.main import main; main(*sys.argv[2:])"


class Confined(Said, tag="confined"):
    """The child has confined itself and waits; or it could not, and ends."""

    problem: str | None


_CONFINED: msgspec.json.Decoder[Confined] = msgspec.json.Decoder(Confined)


class Child:
    """A sandboxed process. It starts at once; `wait` for it before use.

    Args:
        sandbox: how it is confined.
        role: its kind of work, see `speedrunner.workers.sandbox.child.main`.
        mounts: folders that it may read, by name; see `place`.

    Raises `SandboxError`: this kind of sandbox cannot run here, or the machine cannot start a process now.
    """

    def __init__(
        self,
        sandbox: SandboxConfig,
        role: Literal["skills", "code"],
        mounts: Mapping[str, Path] | None = None,
    ) -> None:
        self._is_isolated = sandbox.kind == "isolated"
        # A relative path counts from our current directory, which is not the process's.
        self._mounts = {name: path.resolve() for name, path in (mounts or {}).items()}
        try:
            self._process = self._start(role, {"AS": sandbox.memory_mb * MIB, **LIMITS})
        except OSError as error:  # the machine has no memory, processes or descriptors left
            raise SandboxError(f"cannot start a sandboxed process: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.channel = Channel(self._process.stdout.fileno(), self._process.stdin.fileno())

    def place(self, name: str) -> str:
        """Return the path at which the process sees a folder of `mounts`."""
        return f"/data/{name}" if self._is_isolated else str(self._mounts[name])

    def wait(self, deadline: float) -> None:
        """Wait until the process is ready, at most until the deadline of the monotonic clock.

        Raises `SandboxError`: it will never be ready.
        """
        try:
            why = self.channel.receive(_CONFINED, deadline).problem
            if why is None:
                self.channel.check_quiet()  # it may have been ready, and have died since
                return
        except ChannelError as error:
            why = self._complaint() or f"{type(error).__name__} {error}".strip()
        self.kill()
        raise SandboxError(f"a sandboxed process did not start: {why}")

    def kill(self) -> None:
        """End the process and all processes that it started, at once. A second call does nothing."""
        if self._process.stdin is None or self._process.stdin.closed:
            return
        self.strike()
        self._process.wait()
        self._process.stdin.close()
        # All processes inside have the other pipe open: when it closes, all have ended.
        self.channel.drain(time.monotonic() + END_LIMIT_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def strike(self) -> None:
        """Make the kernel end the process, without waiting for it."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Make the kernel stop everything inside until `resume`, including what the code has left running."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the whole group: two processes that isolate, and the child, which cannot leave the group.

        The group is ours until its first process has been waited for, also if that process has died: killed
        at its start, it leaves the other isolating process waiting for ever.
        """
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def death(self) -> str:
        """Describe how the process ended, once its pipes are closed."""
        try:
            status = self._process.wait(timeout=0.5)  # its pipes close shortly before
        except subprocess.TimeoutExpired:
            return "it closed its pipes"
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # see `_signal`
        # bubblewrap reports signals as a shell does.
        return describe_exit(128 - status if status - 128 in signal.valid_signals() else status)

    def _start(self, role: str, limits: Mapping[str, int]) -> subprocess.Popen[bytes]:
        if self._is_isolated:
            places = {self.place(name): path for name, path in self._mounts.items()}
            places["/sandbox/child"] = CODE
            program = [*bubblewrap_command(places), interpreter()]
            folder, parent = "/sandbox", 0
        else:
            program = [getattr(sys, "_base_executable", sys.executable)]
            folder, parent = str(CODE.parent), os.getpid()
        settings = json.dumps({"limits": limits, "parent": parent})
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_GROUPS)  # child processes inherit the mask
        try:
            return subprocess.Popen(
                [*FIRST_VICTIM, *program, "-s", "-P", "-S", "-c", PROGRAM, folder, role, settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                env={"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")},
                start_new_session=True,  # nothing inside can leave its group
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _complaint(self) -> str:
        """Return the last line that the starting process wrote to its error stream."""
        assert self._process.stderr is not None
        self.strike()
        os.set_blocking(self._process.stderr.fileno(), False)
        lines = (self._process.stderr.read(65_536) or b"").decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def describe_exit(status: int) -> str:
    """Describe the exit status of a process in words; a negative one is a signal's."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


class ChildPool:
    """Processes for skills, each used once; one is kept ready.

    Args:
        sandbox: how they are confined.
    """

    def __init__(self, sandbox: SandboxConfig) -> None:
        self._sandbox = sandbox
        self._spare: Child | None = None

    def refill(self) -> None:
        """Start the missing process, without waiting for it; if that fails, `take` tries again."""
        if self._spare is None:
            with suppress(SandboxError):
                self._spare = Child(self._sandbox, "skills")

    def take(self) -> Child:
        """Return a process that is ready, and start the next one. The caller owns and ends it.

        Raises `SandboxError`: none starts within `START_LIMIT_S`.
        """
        deadline = time.monotonic() + START_LIMIT_S
        child, self._spare = self._spare or Child(self._sandbox, "skills"), None
        try:
            child.wait(deadline)
        except SandboxError:  # it may have been killed since it started, e.g. for lack of memory
            child = Child(self._sandbox, "skills")
            child.wait(deadline)
        self.refill()
        return child

    def close(self) -> None:
        """End the process that was not taken."""
        if self._spare is not None:
            self._spare.kill()
            self._spare = None


ADVICE = "ask the administrators to allow user namespaces (docs/troubleshooting.md)"


@functools.cache
def require(sandbox: SandboxConfig) -> None:
    """Start one process and end it, to detect problems before anything else starts.

    Logs a warning if the sandbox isolates nothing. A sandbox that has started is not tried again.

    Raises `SandboxError`: this kind of sandbox cannot run on this machine; the text says what to do.
    """
    if sandbox.kind == "rlimits":
        logging.getLogger(__name__).warning(
            "sandbox.kind=rlimits: skills and inducer code are NOT isolated: they can read all your"
            " files and your processes' environment variables; use it only for code that you would run"
            " yourself"
        )
    child = Child(sandbox, "skills")
    try:
        child.wait(time.monotonic() + START_LIMIT_S)
    except SandboxError as error:
        if sandbox.kind == "rlimits":
            raise
        raise SandboxError(f"skills cannot be isolated here: {error}; {ADVICE}; or {INSTEAD}") from error
    child.kill()
