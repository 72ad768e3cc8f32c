"""The ScienceWorld simulator (scienceworld 1.2.3, allenai/ScienceWorld) in a Java process."""

from __future__ import annotations

from envs.java_process import JavaSimulator, SimulatorFailed


class Simulator(JavaSimulator):
    """One Java process with one simulator of ScienceWorld. See `JavaSimulator`."""

    title = "ScienceWorld"
    package = "scienceworld"  # its folder has a table of types, which the simulator would otherwise write
    jar = "scienceworld.jar"
    interface = "scienceworld.runtime.pythonapi.PythonInterface"
    heap_mb = 256  # with this heap the process stays below 400 MB, whichever task it plays

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
