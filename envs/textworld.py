"""TextWorldExpress: three text games in a house: cooking, tidying up, and finding a coin.

An episode starts, ends and is scored as by `TextWorldExpressEnv` of textworld-express 1.1.0
(cognitiveailab/TextWorldExpress), `textworld_express/textworld_express.py`, with its default games.
"""

from __future__ import annotations

import random
from typing import Any, Literal

import msgspec

from envs.java_env import JavaEnv, JavaSimulator, SimulatorFailed, read_phrases
from envs.text_env import (
    TEST_SIZE,
    TRAIN_SIZE,
    Description,
    EpisodeOver,
    Limits,
    Opening,
    Outcome,
    Primitive,
    Split,
    Task,
    UnknownTask,
    read_description,
)

Game = Literal["cookingworld", "twc", "coin"]
"""CookingWorld, TextWorld Commonsense, and Coin Collector."""

GAMES: tuple[Game, ...] = ("cookingworld", "twc", "coin")

FOLDS = {"train": range(1_000), "dev": range(10_000, 11_000), "test": range(20_000, 21_000)}
"""The simulator's folds with their seeds. Folds have different ingredients, recipes and objects."""

SPLIT_SEED = 42

PHRASES = read_phrases(__file__)
"""Primitives, each with its call in the simulator's words: the valid actions of its games."""

LOOKING = ("look_around", "inventory", "examine", "read")
"""Primitives that change nothing."""


class Step(
    msgspec.Struct,
    frozen=True,
    rename={"points": "scoreRaw", "success": "tasksuccess", "failure": "taskfailure"},
):
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
    """A game of TextWorldExpress in a Java process."""

    title = "TextWorldExpress"
    package = "textworld_express"  # its folder has the tables from which games are drawn
    jar = "textworld-express.jar"
    interface = "textworldexpress.runtime.PythonInterface"
    heap_mb = 96

    def load(self, game: str, fold: str, seed: int) -> Step:
        """Create a game with the simulator's default parameters. Raises `SimulatorFailed`."""
        if error := self._ask("load", game, ""):
            raise SimulatorFailed(f"{self.title} cannot load {game}: {error}")
        return msgspec.json.decode(self._ask("generateNewGameJSON", seed, fold, False), type=Step)

    def task_description(self) -> str:
        """Return the game's instruction. Raises `SimulatorFailed`."""
        return str(self._ask("getTaskDescription"))

    def step(self, phrase: str) -> Step:
        """Act. Raises `SimulatorFailed`."""
        return msgspec.json.decode(self._ask("stepJSON", phrase), type=Step)


class TextWorld(JavaEnv[Simulator]):
    """CookingWorld, TextWorld Commonsense and Coin Collector of TextWorldExpress 1.1.0, as it makes them by
    default: 11 places (TextWorld Commonsense: 3), doors, and distracting objects.

    The simulator ends an episode itself, when the game is won or lost. See `JavaEnv` for its process.

    Args:
        description: how much the agents' prompts say about the rules.
    """

    name = "textworld"
    limits = Limits(llm_calls=100, actions=100)
    skills_read = (
        "Everything that the actor sees: what primitives return. A skill gets the place from look_around()."
    )
    memory_mb = 230  # 170 of them for the Java process
    phrases = PHRASES
    replace_above_bytes = 150_000_000
    primitives = tuple(
        Primitive(name, phrase.signature, phrase.doc, advances=name not in LOOKING)
        for name, phrase in PHRASES.items()
    )

    def __init__(self, *, description: Description = "paper") -> None:
        super().__init__(Simulator)
        self.description = read_description(__file__, description)
        self._last: Step | None = None

    @classmethod
    def splits(cls, *, game: Game = "cookingworld") -> Split:
        """Return 200 training and 30 test worlds of one game, the same for every run.

        They are drawn with seed 42 from the simulator's training and test folds.
        """
        generator = random.Random(SPLIT_SEED)
        train, test = (
            [Task(cls.name, game, seed) for seed in generator.sample(FOLDS[fold], size)]
            for fold, size in (("train", TRAIN_SIZE), ("test", TEST_SIZE))
        )
        return Split(train, test)

    def reset(self, task: Task) -> Opening:
        """Start a game. The task's index is the game's seed, which determines its fold.

        Raises:
            UnknownTask: no such game or seed.
            NoJava: there is no Java runtime.
        """
        self.check_task(task, GAMES)
        fold = next((name for name, seeds in FOLDS.items() if task.index in seeds), None)
        if fold is None:
            known = ", ".join(f"{seeds[0]} to {seeds[-1]} ({name})" for name, seeds in FOLDS.items())
            raise UnknownTask(f"{task.name} has the seeds {known}, not {task.index}")
        self._last = None
        seed = task.index
        self._last, instruction = self._load(
            lambda simulator: (simulator.load(task.name, fold, seed), simulator.task_description())
        )
        return Opening(instruction, self._last.observation)

    def call(self, name: str, **arguments: Any) -> str:
        """Act, and return the simulator's reply unchanged."""
        simulator = self._current()
        if self.done:
            raise EpisodeOver("the game is over; reset starts another")
        self._last = simulator.step(self._write(name, arguments))
        return self._last.observation

    @property
    def done(self) -> bool:
        """Whether the game is won or lost."""
        return self._last is not None and (self._last.success or self._last.failure)

    def outcome(self) -> Outcome:
        """Score by the simulator's normalised score, the share of the game's points."""
        if self._last is None:
            raise EpisodeOver("there is no episode yet; reset starts one")
        detail = {"points": self._last.points, "lost": self._last.failure}
        return Outcome(self._last.score, self._last.success, detail)
