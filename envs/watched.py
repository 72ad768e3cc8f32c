"""An environment under test that records what it is doing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envs.class_registry import in_one_line, place
from envs.option_values import format_value
from envs.text_env import Opening, Outcome, Task, TextEnv


class Watched(TextEnv):
    """An environment that records its last request.

    Args:
        say: called with each request before it runs.

    Attributes:
        asked: the last request, such as `call: walk(steps=1) with task.name=maze task.index=7`.
    """

    def __init__(self, env: TextEnv, say: Callable[[str], None] = lambda what: None) -> None:
        self._env = env
        self._say = say
        self._task: Task | None = None
        self.asked = "the constructor"
        self.name = env.name  # type: ignore[misc]  # elsewhere the class has it
        self.primitives, self.description, self.limits = env.primitives, env.description, env.limits

    def reset(self, task: Task) -> Opening:
        """See `TextEnv`."""
        self._task = None
        self._describe_error(f"reset: {task}")
        self._task = task
        return self._env.reset(task)

    def call(self, name: str, **arguments: Any) -> str | None:
        """See `TextEnv`."""
        given = ", ".join(f"{parameter}={format_value(value)}" for parameter, value in arguments.items())
        return self._describe_error(f"call: {name}({given})").call(name, **arguments)

    def free_observation(self) -> str | None:
        """See `TextEnv`."""
        return self._describe_error("free_observation").free_observation()

    @property
    def done(self) -> bool:
        """See `TextEnv`."""
        return self._describe_error("done").done

    def outcome(self) -> Outcome:
        """See `TextEnv`."""
        return self._describe_error("outcome").outcome()

    def snapshot(self) -> dict[str, Any] | None:
        """See `TextEnv`."""
        return self._describe_error("snapshot").snapshot()

    def close(self) -> None:
        """See `TextEnv`."""
        self._describe_error("close").close()

    def describe_error(self, error: Exception) -> str:
        """Describe an error of the last request, and its place."""
        return f"{self.asked} raised {in_one_line(error)} ({self.place(error)})"

    def place(self, error: Exception) -> str:
        """Return where an error was raised: in the environment's own file, if possible."""
        return place(error, type(self._env))

    def _describe_error(self, what: str) -> TextEnv:
        task = f" with task.name={self._task.name} task.index={self._task.index}" if self._task else ""
        self.asked = what + task
        self._say(self.asked)
        return self._env
