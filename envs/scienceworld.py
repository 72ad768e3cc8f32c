"""ScienceWorld: elementary school science experiments in a house described in text (paper, Appendix B).

An episode starts and is scored as by `ScienceWorldEnv` of scienceworld 1.2.3 (allenai/ScienceWorld),
`scienceworld/scienceworld.py`.
"""

from __future__ import annotations

import inspect
import string
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.scienceworld_simulator import Simulator, SimulatorFailed
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
from speedrunner.plain.plain_records import read_table

HEADING = "Task Description:"
"""The simulator's own heading, which an instruction does not need."""

MAX_ARGUMENT_CHARS = 200
"""More than any name that the simulator gives to an object."""

MAX_OPTION = 9_999
"""More than the number of options in any ambiguous request."""


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
        """The primitive's signature: an argument is text, except the number of an option."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(name, kind, default=default, annotation=int if name == "option" else str)
            for words, default in ((self.words, inspect.Parameter.empty), (self.then, ""))
            for name in _arguments(words)
        ]
        return inspect.Signature(parameters, return_annotation=str)

    def __call__(self, **arguments: str | int) -> str:
        """Return the primitive's call as the parser reads it."""
        words = self.words + self.then * any(arguments.get(name) for name in _arguments(self.then))
        return words.format(**arguments)


def _arguments(words: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(words) if name is not None]


PHRASES = {
    row.pop("primitive"): Phrase(**row)
    for row in read_table(Path(__file__).with_name("scienceworld_phrases.csv"))
}
"""The 25 primitives in the paper's order (Appendix B), each with its call in the parser's words. The classes
`scienceworld.actions.Action*` of `scienceworld.jar` accept these phrases."""


class ScienceWorld(TextEnv):
    """All 30 tasks of ScienceWorld 1.2.3, each in its variations, without simplifications.

    The Java process starts at the first `reset`, serves one episode after another, and is replaced when it
    has ended. An error in it in the middle of an episode is a `SimulatorFailed`.

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
    primitives = tuple(
        # While an ambiguous request is pending, looking and inventory advance the world too.
        Primitive(name, phrase.signature, phrase.doc, advances=name != "task_description")
        for name, phrase in PHRASES.items()
    )

    def __init__(self, *, description: Description = "paper") -> None:
        self.description = read_description(__file__, description)
        self._simulator: Simulator | None = None
        self._playing = False
        # Read from the simulator when needed, once between two actions; `None` until then.
        self._outcome: Outcome | None = None
        self._free_observation: str | None = None

    def warm_up(self) -> None:
        """Start the Java process. Raises `NoJava`."""
        self._fresh_simulator()

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
            NoJava: the Java runtime does not run the simulator.
        """
        self.check_task(task, VARIATIONS)
        if task.index >= VARIATIONS[task.name]:
            last = VARIATIONS[task.name] - 1
            raise UnknownTask(f"{task.name} has the variations 0 to {last}, not {task.index}")
        self._outcome = self._free_observation = None
        self._playing = False
        reused = self._simulator is not None
        try:
            opening = _open(self._fresh_simulator(), task)
        except SimulatorFailed:
            if not reused:
                raise
            self.close()
            opening = _open(self._fresh_simulator(), task)
        self._playing = True
        return opening

    def call(self, name: str, **arguments: Any) -> str:
        """Act, and return the parser's reply unchanged."""
        simulator = self._current()
        checked = self.check_call(name, arguments)
        for parameter, value in checked.items():
            if value != PHRASES[name].signature.parameters[parameter].default:
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
        self._playing = False
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    def _current(self) -> Simulator:
        """Return the simulator of the running episode. Raises `EpisodeOver` if there is none."""
        if self._simulator is None or not self._playing:
            raise EpisodeOver("there is no episode; reset starts one")
        return self._simulator

    def _fresh_simulator(self) -> Simulator:
        """Return the process for the next episode: the current one if it runs."""
        if self._simulator is None or not self._simulator.usable:
            self.close()
            self._simulator = Simulator()
        return self._simulator


def _check_argument(name: str, parameter: str, value: str | int) -> None:
    """Raise `InvalidPrimitiveCall` if an argument is neither a line of printable text nor a small number."""
    if isinstance(value, int):
        if not 0 <= value <= MAX_OPTION:
            raise InvalidPrimitiveCall(f"{name}: {parameter} must be one of the listed numbers")
        return
    if not value.strip():
        raise InvalidPrimitiveCall(f"{name}: {parameter} is empty; give a name as the observations do")
    if len(value) > MAX_ARGUMENT_CHARS:
        raise InvalidPrimitiveCall(
            f"{name}: {parameter} has {len(value):,} characters; {MAX_ARGUMENT_CHARS} are allowed"
        )
    if not value.isprintable():
        raise InvalidPrimitiveCall(f"{name}: {parameter} must be one line without control characters")


def _open(simulator: Simulator, task: Task) -> Opening:
    simulator.load(task.name, task.index)
    observation = simulator.step("look around")  # as upstream does; it updates the score
    return Opening(simulator.task_description().removeprefix(HEADING).strip(), observation)
