"""ScienceWorld: elementary school science experiments in a house described in text (paper, Appendix B).

An episode starts and is scored as by `ScienceWorldEnv` of scienceworld 1.2.3 (allenai/ScienceWorld),
`scienceworld/scienceworld.py`. Families are the topics of its `tasks.json`; numbers of variations and their
shares for training and test are `scienceworld.runtime.pythonapi.PythonInterface`'s in `scienceworld.jar`.
"""

from __future__ import annotations

import inspect
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from envs.scienceworld_simulator import Simulator
from envs.text_env import (
    TEST_SIZE,
    TRAIN_SIZE,
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

FAMILIES = {
    int(family): {row["task"]: int(row["variations"]) for row in rows}
    for family, rows in groupby(
        read_table(Path(__file__).with_name("scienceworld_tasks.csv")), key=itemgetter("family")
    )
}
"""Family -> task name -> number of variations. The paper learns 3 (electricity) and 4 (classification)."""

VARIATIONS = {name: number for family in FAMILIES.values() for name, number in family.items()}
"""Task name -> number of variations."""

SPLIT_SEED = 42

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

    The Java process starts at the first `reset` and serves one episode after another. An error in it, or its
    end, is a `SimulatorFailed`.

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

    def warm_up(self) -> None:
        """Start the Java process. Raises `EnvironmentFault`."""
        if self._simulator is None:
            self._simulator = Simulator()

    @classmethod
    def splits(cls, *, family: int | None = None) -> Split:
        """Return the paper's 200 training and 30 test worlds of one family, the same for every run.

        One generator with seed 42 draws first the training tasks, then the test tasks, from the sorted names
        of the family's tasks and the simulator's own variations for each. A smaller family gives all its
        worlds.

        Raises `InvalidOption`: no family was given, or there is none with that number.
        """
        if family not in FAMILIES:
            raise InvalidOption(
                "option 'family' of scienceworld must be set for a split: family=3 (electricity) or family=4"
                f" (classification) as in the paper, or another from 1 to {max(FAMILIES)}, not {family}"
            )
        generator, tasks = random.Random(SPLIT_SEED), FAMILIES[family]

        def draw(variations: Callable[[str], range], size: int) -> list[Task]:
            pool = sorted((name, number) for name in tasks for number in variations(name))
            return [Task(cls.name, *world) for world in generator.sample(pool, min(size, len(pool)))]

        return Split(draw(variations_for_training, TRAIN_SIZE), draw(variations_for_test, TEST_SIZE))

    def reset(self, task: Task) -> Opening:
        """Start a task; its index is the variation.

        Raises:
            UnknownTask: no such task or variation.
            EnvironmentFault: the Java runtime does not run the simulator.
        """
        self.check_task(task, VARIATIONS)
        if task.index >= VARIATIONS[task.name]:
            last = VARIATIONS[task.name] - 1
            raise UnknownTask(f"{task.name} has the variations 0 to {last}, not {task.index}")
        self._playing = False
        simulator = self._simulator = self._simulator or Simulator()
        simulator.load(task.name, task.index)
        observation = simulator.step("look around")  # as upstream does; it updates the score
        self._playing = True
        return Opening(simulator.task_description().removeprefix(HEADING).strip(), observation)

    def call(self, name: str, **arguments: Any) -> str:
        """Act, and return the parser's reply unchanged."""
        simulator = self._current()
        checked = self.check_call(name, arguments)
        for parameter, value in checked.items():
            if value != PHRASES[name].signature.parameters[parameter].default:
                _check_argument(name, parameter, value)
        return simulator.step(PHRASES[name](**checked))

    def free_observation(self) -> str | None:
        """Describe the agent's location, by the simulator's free look."""
        return self._current().look()

    @property
    def done(self) -> bool:
        """Always false: the agent submits, or runs out of calls. A complete task does not end the episode."""
        return False

    def outcome(self) -> Outcome:
        """Score 1 if the simulator's score is at its maximum, else 0. Raises `SimulatorFailed`."""
        simulator = self._current()
        score = simulator.score()
        success = score >= 1.0
        return Outcome(float(success), success, {"score_raw": score, "moves": simulator.moves()})

    def close(self) -> None:
        """End the Java process."""
        self._playing = False
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    def _current(self) -> Simulator:
        """Return the simulator of the running episode. Raises `EpisodeOver` if there is none."""
        if self._simulator is None or not self._playing:
            raise EpisodeOver("there is no episode; reset starts one")
        return self._simulator


def variations_for_training(name: str) -> range:
    """Return the simulator's own training variations of a task: the first two quarters."""
    return range(2 * (VARIATIONS[name] // 4))


def variations_for_test(name: str) -> range:
    """Return the simulator's own test variations of a task, those after its third quarter.

    The quarters are rounded down. The simulator takes at most one more quarter's length of the remainder.
    """
    quarter = VARIATIONS[name] // 4
    return range(3 * quarter, min(5 * quarter, VARIATIONS[name]))


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
