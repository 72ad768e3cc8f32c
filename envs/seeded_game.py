"""Games of someone else that take a text action, return a text, and draw their world from a seed.

An adapter needs two functions: `start` and `act`. `envs/openenv.py` is one for servers, and
docs/interchange.md shows one for Gymnasium.
"""

from __future__ import annotations

import hashlib
import inspect
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from envs.text_env import (
    EnvironmentFault,
    EpisodeOver,
    Limits,
    Opening,
    Outcome,
    Primitive,
    Split,
    Task,
    TextEnv,
)

WORLD_SEEDS = range(100_000)
SPLIT_SEED = 42
TASK = "default"


class IgnoresSeed(EnvironmentFault):
    """A game that was started twice with one seed began differently."""


@dataclass(frozen=True, slots=True)
class GameStep:
    """The answer of a game.

    Attributes:
        text: the observation.
        reward: the reward of the action.
        done: whether the game has ended the episode.
    """

    text: str
    reward: float = 0.0
    done: bool = False


class SeededGame(TextEnv):
    """A game with one primitive, `act(text)`. A task is a seed.

    The score is the sum of all rewards, limited to [0, 1]; an episode succeeds with the score 1. A subclass
    sets `description` and may set `instruction` and `limits`.
    """

    description = "You act in a text environment. act(text) sends an action and returns an observation."
    instruction = "Get as much reward as you can."
    """The task, in the opening of each episode."""
    limits = Limits(llm_calls=100, actions=100)
    primitives = (
        Primitive(
            "act",
            inspect.Signature(
                [inspect.Parameter("text", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)],
                return_annotation=str,
            ),
            "Send an action and return the observation after it.",
        ),
    )
    skills_read = "Everything that the actor sees: what act returns."

    _last: GameStep | None = None
    _reward = 0.0
    _is_checked = False

    @classmethod
    def splits(cls) -> Split:
        """Return 200 training and 30 test seeds, drawn with seed 42 for every run."""
        return Split.drawn(cls.name, TASK, WORLD_SEEDS, SPLIT_SEED)

    @abstractmethod
    def start(self, seed: int) -> GameStep:
        """Start a game. The seed alone determines its world."""

    @abstractmethod
    def act(self, text: str) -> GameStep:
        """Take an action."""

    def reset(self, task: Task) -> Opening:
        """Start the game of a seed, the task's index. The first game is started twice.

        Raises:
            UnknownTask: no such task.
            IgnoresSeed: the two starts of the first game differ.
        """
        self.check_task(task, (TASK,))
        self._last = None
        started = self.start(task.index)
        if not self._is_checked:
            again = self.start(task.index)
            if again != started:
                raise IgnoresSeed(
                    f"{self.name} ignores its seed: two starts with seed {task.index} have the hashes"
                    f" {_hash(started)} and {_hash(again)}; runs need worlds that a seed determines"
                )
            self._is_checked = True
        self._last, self._reward = started, 0.0
        return Opening(self.instruction, started.text)

    def call(self, name: str, **arguments: Any) -> str:
        """Act, and return the game's text unchanged."""
        if self._last is None or self._last.done:
            raise EpisodeOver("there is no episode; reset starts one")
        step = self.act(**self.check_call(name, arguments))
        self._last = step
        self._reward += step.reward
        return step.text

    @property
    def done(self) -> bool:
        """Whether the game has ended the episode."""
        return self._last is not None and self._last.done

    def outcome(self) -> Outcome:
        """Score by the sum of the rewards."""
        if self._last is None:
            raise EpisodeOver("there is no episode yet; reset starts one")
        score = min(max(self._reward, 0.0), 1.0)
        return Outcome(score, score >= 1.0, {"reward": self._reward})


def _hash(step: GameStep) -> str:
    return hashlib.sha256(repr(step).encode(errors="surrogatepass")).hexdigest()[:12]
