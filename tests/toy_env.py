"""A corridor with a flag at its right end and a pit at its left: an environment for tests."""

from __future__ import annotations

import inspect
import time
from typing import Any, Literal

from envs import EpisodeOver, Limits, Opening, Outcome, Primitive, Split, Task, TextEnv

TASKS = ("default", "slow_step", "endless_step", "broken_reset", "broken_step")


def _walk(steps: int = 1, direction: Literal["left", "right"] = "right") -> str: ...  # type: ignore[empty-body]


def _look() -> str: ...  # type: ignore[empty-body]


class Corridor(TextEnv):
    """Walk to the flag. `Task.index` is the number of fields between the start and the flag.

    In the task `broken_step` the environment breaks when position 3 is entered, in `broken_reset` at once;
    in `slow_step` a walk takes 0.3 seconds. `numbers` are what a walk tells beside the view on the way.
    """

    def __init__(self, *, pit: int = -5, numbers: int = 0) -> None:
        self._pit = pit
        self._numbers = "".join(f" {number}" for number in range(numbers))
        self.primitives = (
            Primitive(
                "walk",
                inspect.signature(_walk, eval_str=True),
                "Walk some fields along the corridor.",
            ),
            Primitive("look", inspect.signature(_look, eval_str=True), "Look around.", advances=False),
        )
        self.description = "You are in a corridor. Walk to the flag at its right end and mind the pit."
        self.limits = Limits(llm_calls=20, actions=2_000)
        self._task: Task | None = None
        self._position = 0

    @classmethod
    def splits(cls, *, train: int = 4, test: int = 2) -> Split:
        tasks = [Task(cls.name, "default", 3 + index) for index in range(train + test)]
        return Split(tasks[:train], tasks[train:])

    def reset(self, task: Task) -> Opening:
        self.check_task(task, TASKS)
        if task.name == "broken_reset":
            raise RuntimeError("the corridor caved in")
        self._task, self._position = task, 0
        return Opening("Walk to the flag.", self._view())

    def call(self, name: str, **arguments: Any) -> str:
        if self._task is None or self.done:
            raise EpisodeOver("the episode is over")
        arguments = self.check_call(name, arguments)
        if name == "walk":
            print("walking")  # environments may print; nobody must mind
            if self._task.name == "slow_step":
                time.sleep(0.3)
            if self._task.name == "endless_step":
                time.sleep(1000)
            sign = 1 if arguments["direction"] == "right" else -1
            self._position += sign * arguments["steps"]
            if self._task.name == "broken_step" and self._position == 3:
                raise RuntimeError("the floor broke")
            return self._view() + ("" if self.done else self._numbers)
        return self._view()

    @property
    def done(self) -> bool:
        return self._task is not None and not self._pit < self._position < self._task.index

    def outcome(self) -> Outcome:
        assert self._task is not None
        score = min(max(self._position / self._task.index, 0.0), 1.0)
        return Outcome(score, self._position >= self._task.index, {"position": self._position})

    def _view(self) -> str:
        assert self._task is not None
        if self._position >= self._task.index:
            return "You are at the flag."
        if self._position <= self._pit:
            return "You fell into the pit."
        return f"You are at field {self._position}. The flag is at field {self._task.index}."


class Racetrack(Corridor):
    """A corridor whose goals are the same in each world."""

    goals = ("Leave the start", "Reach the flag")
