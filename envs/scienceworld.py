"""ScienceWorld: elementary school science experiments in a house described in text (paper, Appendix B).

An episode starts and is scored as by `ScienceWorldEnv` of scienceworld 1.2.3 (allenai/ScienceWorld),
`scienceworld/scienceworld.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from envs.java_env import JavaEnv, JavaSimulator, SimulatorFailed, read_phrases
from envs.scienceworld_tasks import FAMILIES, VARIATIONS, draw
from envs.text_env import (
    Description,
    InvalidOption,
    Limits,
    Opening,
    Outcome,
    Primitive,
    Split,
    Task,
    UnknownTask,
    read_description,
)

HEADING = "Task Description:"
"""The simulator's own heading, which an instruction does not need."""

PHRASES = read_phrases(__file__)
"""The 25 primitives in the paper's order (Appendix B), each with its call in the parser's words. The classes
`scienceworld.actions.Action*` of `scienceworld.jar` accept these phrases."""


class Simulator(JavaSimulator):
    """The simulator of ScienceWorld in a Java process."""

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


class ScienceWorld(JavaEnv[Simulator]):
    """All 30 tasks of ScienceWorld 1.2.3, each in its variations, without simplifications.

    Args:
        description: how much the agents' prompts say about the rules.
    """

    name = "scienceworld"
    limits = Limits(llm_calls=100, actions=None)
    skills_read = (
        "Primitives return only the parser's answer. The actor also reads a description of the place after "
        "each action; a skill gets it from look_around(), and the task from task_description()."
    )
    ends = ""
    submits = True
    memory_mb = 540  # 480 of them for the Java process
    phrases = PHRASES
    replace_above_bytes = 420_000_000  # none may grow to 480 MB
    primitives = tuple(
        # While an ambiguous request is pending, looking and inventory advance the world too.
        Primitive(name, phrase.signature, phrase.doc, advances=name != "task_description")
        for name, phrase in PHRASES.items()
    )

    def __init__(self, *, description: Description = "paper") -> None:
        super().__init__(Simulator)
        self.description = read_description(__file__, description)
        # Read from the simulator when needed, once between two actions; `None` until then.
        self._outcome: Outcome | None = None
        self._free_observation: str | None = None

    @classmethod
    def splits(cls, *, family: int | None = None) -> Split:
        """Return the paper's 200 training and 30 test worlds of one family, the same for every run.

        They are drawn with seed 42 from the simulator's own training and test variations of the family's
        tasks. A smaller family gives all its worlds.

        Raises `InvalidOption`: no family was given, or there is none with that number.
        """
        if family not in FAMILIES:
            raise InvalidOption(
                "option 'family' of scienceworld must be set for a split: family=3 (electricity) or family=4"
                f" (classification) as in the paper, or another from 1 to {max(FAMILIES)}, not {family}"
            )
        return draw(cls.name, family)

    def reset(self, task: Task) -> Opening:
        """Start a task; its index is the variation.

        Raises:
            UnknownTask: no such task or variation.
            NoJava: there is no Java runtime.
        """
        self.check_task(task, VARIATIONS)
        if task.index >= VARIATIONS[task.name]:
            last = VARIATIONS[task.name] - 1
            raise UnknownTask(f"{task.name} has the variations 0 to {last}, not {task.index}")
        self._outcome = self._free_observation = None
        return self._load(lambda simulator: _open(simulator, task))

    def call(self, name: str, **arguments: Any) -> str:
        """Act, and return the parser's reply unchanged."""
        simulator = self._current()
        phrase = self._write(name, arguments)
        self._free_observation = None
        text = simulator.step(phrase)
        self._outcome = None  # only now: if the step fails, the values that were read remain
        return text

    def free_observation(self) -> str | None:
        """Describe the agent's location, by the simulator's free look."""
        if self._free_observation is None and self._simulator is not None and self._playing:
            self._free_observation = self._simulator.look()
        return self._free_observation

    @property
    def done(self) -> bool:
        """Always false: the agent submits, or runs out of calls. A complete task does not end the episode."""
        return False

    def outcome(self) -> Outcome:
        """Score 1 if the simulator's score is at its maximum, else 0.

        Raises `SimulatorFailed`: the simulator ended before the outcome of its last action was read.
        """
        if self._outcome is None:
            simulator = self._current()
            score = simulator.score()
            success = score >= 1.0
            detail = {"score_raw": score, "moves": simulator.moves()}
            self._outcome = Outcome(float(success), success, detail)
        return self._outcome

    def close(self) -> None:
        """End the Java process. The outcome stays readable."""
        if self._playing:
            with suppress(SimulatorFailed):
                self.outcome()
        self._free_observation = None
        super().close()


def _open(simulator: Simulator, task: Task) -> Opening:
    simulator.load(task.name, task.index)
    observation = simulator.step("look around")  # as upstream does; it updates the score
    return Opening(simulator.task_description().removeprefix(HEADING).strip(), observation)
