"""A beach with a hidden treasure."""

from __future__ import annotations

import inspect
import random
from typing import Any

from envs import EpisodeOver, Limits, Opening, Outcome, Primitive, Split, Task, TextEnv


class MyEnv(TextEnv):
    """Find the treasure with few holes. The docstrings of `envs.TextEnv` say what each part promises.

    Args:
        width: of the beach, in steps.
    """

    # Options are keyword-only and have defaults: `env.width=20` sets this one.
    def __init__(self, *, width: int = 9) -> None:
        self._width = width
        self.description = (
            f"You are on a beach, {width} steps from west to east. A treasure is buried somewhere. "
            "Digging shows in which direction it lies."
        )
        # Primitives are the actions of the actor and the functions that its skills are built on.
        self.primitives = tuple(
            Primitive(each.__name__, inspect.signature(each, eval_str=True), inspect.getdoc(each) or "")
            for each in (self.walk, self.dig)
        )
        # Requests to the model, and primitive calls, of one episode at most.
        self.limits = Limits(llm_calls=30, actions=100)
        self._task: Task | None = None
        self._place = self._treasure = self._holes = 0
        self._found = False

    @classmethod
    def splits(cls, *, seed: int = 0) -> Split:
        """200 beaches to train on and 30 held out, drawn by `seed`."""
        return Split.drawn(cls.name, "beach", range(10_000), seed)

    def reset(self, task: Task) -> Opening:
        """Bury the treasure. A task is the same world whenever and wherever it is played."""
        self.check_task(task, ["beach"])
        self._task, self._place, self._holes, self._found = task, 0, 0, False
        self._treasure = random.Random(task.index).randrange(1, self._width)
        return Opening("Dig up the treasure.", "You stand at the west end of the beach.")

    def call(self, name: str, **arguments: Any) -> str | None:
        """Run a primitive; every `call` begins with these two checks."""
        if self._task is None or self.done:
            raise EpisodeOver("the episode is over, or has not begun")
        arguments = self.check_call(name, arguments)
        said: str = getattr(self, name)(**arguments)
        return said

    def walk(self, steps: int) -> str:
        """Walk some steps to the east; a negative number leads to the west."""
        self._place = min(max(self._place + steps, 0), self._width - 1)
        return f"You stand {self._place} steps from the west end."

    def dig(self) -> str:
        """Dig where you stand."""
        self._holes += 1
        self._found = self._place == self._treasure
        if self._found:
            return "Here it is!"
        return f"Only sand. The treasure lies to the {'east' if self._treasure > self._place else 'west'}."

    @property
    def done(self) -> bool:
        """Whether the world has ended the episode; its limits end it elsewhere."""
        return self._found

    def outcome(self) -> Outcome:
        """The score, readable at any time: 1 for the first hole, 1/2 for the second, and so on."""
        return Outcome(1 / self._holes if self._found else 0.0, self._found, {"holes": self._holes})
