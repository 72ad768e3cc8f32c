"""TextWorldExpress (textworld-express 1.1.0, cognitiveailab/TextWorldExpress) in a Java process."""

from __future__ import annotations

import json
from dataclasses import dataclass

from envs.java_process import JavaSimulator, SimulatorFailed


@dataclass(frozen=True, slots=True)
class Step:
    """The simulator's answer to an action.

    Attributes:
        observation: its text.
        score: the normalised score, in [0, 1]; `points` before the normalisation.
        success, failure: whether the game is won or lost.
    """

    observation: str
    score: float
    points: float
    success: bool
    failure: bool


class Simulator(JavaSimulator):
    """One Java process with one game of TextWorldExpress. See `JavaSimulator`."""

    title = "TextWorldExpress"
    package = "textworld_express"  # its folder has the tables from which games are drawn
    jar = "textworld-express.jar"
    interface = "textworldexpress.runtime.PythonInterface"
    heap_mb = 96

    def load(self, game: str, fold: str, seed: int) -> Step:
        """Create a game with the simulator's default parameters. Raises `SimulatorFailed`."""
        if error := self._ask("load", game, ""):
            raise SimulatorFailed(f"{self.title} cannot load {game}: {error}")
        return _step(self._ask("generateNewGameJSON", seed, fold, False))

    def task_description(self) -> str:
        """Return the game's instruction. Raises `SimulatorFailed`."""
        return str(self._ask("getTaskDescription"))

    def step(self, phrase: str) -> Step:
        """Act. Raises `SimulatorFailed`."""
        return _step(self._ask("stepJSON", phrase))


def _step(answer: str) -> Step:
    found = json.loads(answer)
    return Step(
        found["observation"],
        found["score"],
        found["scoreRaw"],
        found["tasksuccess"],
        found["taskfailure"],
    )
