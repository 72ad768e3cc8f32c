"""One sandboxed process: started, talked to, and ended without a trace."""

from __future__ import annotations

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

from speedrunner.sandbox import bubblewrap, child, seccomp
from speedrunner.sandbox.channel import Channel, ChannelError
from speedrunner.sandbox.settings import INSTEAD, Sandbox, SandboxError, SandboxUnavailable

START_LIMIT_S = 60.0
"""Seconds that a process may take until it is ready."""

END_LIMIT_S = 1.0
"""Seconds that the kernel may take to clear a killed process away."""

CODE = Path(child.__file__).parent
"""What runs inside beside the untrusted code."""

PROGRAM = "import sys; sys.path.append(sys.argv[1]); from child.main import main; main(*sys.argv[2:])"


class Ready(msgspec.Struct, tag="ready", array_like=True, forbid_unknown_fields=True):
    """The child has confined itself and waits."""


_READY: msgspec.json.Decoder[Ready] = msgspec.json.Decoder(Ready)


class Child:
    """A sandboxed process. It begins to start at once; `wait` for it before use.

    Args:
        sandbox: how it is confined.
        role: what it serves, see `speedrunner.sandbox.child.main`.
        mounts: folders that it may read, by name; see `place`.

    Raises:
        SandboxUnavailable: this kind of sandbox cannot run here.
        SandboxError: the machine starts no process now.
    """

    def __init__(
        self, sandbox: Sandbox, role: Literal["skills", "code"], mounts: Mapping[str, Path] | None = None
    ) -> None:
        self._kind = sandbox.kind
        self._mounts = dict(mounts or {})
        start = self._isolated if sandbox.kind == "bubblewrap" else self._limited
        try:
            self._process = start(role, sandbox.resources())
        except OSError as error:  # the machine has no memory, processes or descriptors left
            raise SandboxError(f"a sandboxed process cannot be started: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.channel = Channel(self._process.stdout.fileno(), self._process.stdin.fileno())

    @property
    def pid(self) -> int:
        """The process: bubblewrap's, or the child's own."""
        return self._process.pid

    def place(self, name: str) -> str:
        """Where the process sees a folder of `mounts`."""
        return f"/data/{name}" if self._kind == "bubblewrap" else str(self._mounts[name].resolve())

    def wait(self) -> None:
        """Wait until the process is ready.

        Raises:
            SandboxError: it will never be.
        """
        try:
            self.channel.receive(_READY, time.monotonic() + START_LIMIT_S)
            self.channel.check_quiet()  # it may have been ready, and have died
        except ChannelError as error:
            why = self._complaint() or f"{type(error).__name__} {error}".strip()
            self.kill()
            raise SandboxError(f"a sandboxed process did not start: {why}") from error

    def kill(self) -> None:
        """End the process and all that it started, at once. Calling it twice is harmless."""
        if self._process.stdin is None or self._process.stdin.closed:
            return
        self.strike()
        self._process.wait()
        self._process.stdin.close()
        # Everything inside holds the other pipe: when that closes, all have ended.
        self.channel.drain(time.monotonic() + END_LIMIT_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def strike(self) -> None:
        """Have the kernel end the process, without waiting for it."""
        if self._process.poll() is None:
            # Its whole group: bubblewrap's second process is tied to the first only after a moment.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def death(self) -> str:
        """How the process ended, in words, once its pipes are closed."""
        try:
            status = self._process.wait(timeout=0.5)  # its pipes close a little before
        except subprocess.TimeoutExpired:
            return "it closed its pipes"
        number = -status if status < 0 else status - 128  # bubblewrap says it as a shell does
        if number in signal.valid_signals() and number > 0:
            return f"killed by {signal.Signals(number).name}"
        return f"exit status {status}"

    def _limited(self, role: str, limits: Mapping[str, int]) -> subprocess.Popen[bytes]:
        program = getattr(sys, "_base_executable", sys.executable)
        return subprocess.Popen(
            [program, *_arguments(str(CODE.parent), role, limits, os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")},
            start_new_session=True,
        )

    def _isolated(self, role: str, limits: Mapping[str, int]) -> subprocess.Popen[bytes]:
        arguments = _arguments("/sandbox", role, limits, parent=0)
        places = {"/sandbox/child": CODE} | {self.place(name): path for name, path in self._mounts.items()}
        program = seccomp.program()
        reading, writing = os.pipe()
        try:
            try:
                os.write(writing, program)
            finally:
                os.close(writing)
            return subprocess.Popen(
                [*bubblewrap.command(places, reading), bubblewrap.interpreter(), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=bubblewrap.environment(),
                pass_fds=[reading],
                process_group=0,
            )
        finally:
            os.close(reading)

    def _complaint(self) -> str:
        """The last line that the starting process wrote to its error stream."""
        assert self._process.stderr is not None
        self.strike()
        os.set_blocking(self._process.stderr.fileno(), False)
        lines = (self._process.stderr.read(65_536) or b"").decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _arguments(folder: str, role: str, limits: Mapping[str, int], parent: int) -> list[str]:
    """The interpreter's arguments; `folder` is where it finds the package `child`."""
    settings = json.dumps({"limits": limits, "parent": parent})
    return ["-s", "-P", "-S", "-c", PROGRAM, folder, role, settings]


def require(sandbox: Sandbox) -> None:
    """Start one process and end it, so that what cannot work is known before anything else begins.

    Logs a warning where the sandbox isolates nothing.

    Raises:
        SandboxUnavailable: this kind of sandbox cannot run on this machine; the text says what to do.
    """
    if sandbox.kind == "rlimits":
        logging.getLogger(__name__).warning(
            "sandbox.kind=rlimits: skills and inducer code are NOT isolated: they can read your files and use"
            " the network; run nothing with it that you would not run yourself"
        )
    try:
        trial = Child(sandbox, "skills")
        try:
            trial.wait()
        finally:
            trial.kill()
    except SandboxUnavailable:
        raise
    except SandboxError as error:
        if sandbox.kind == "rlimits":
            raise SandboxUnavailable(str(error)) from error
        raise SandboxUnavailable(f"bubblewrap cannot run here: {error}; {INSTEAD}") from error
