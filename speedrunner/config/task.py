"""The one task that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import envs
from envs import EnvironmentFault, Split, Task, UnknownTask
from speedrunner.config.schema import Config


def chosen_task(config: Config) -> Task:
    """The task that `task.name` and `task.index` name.

    What they leave out is the first training task's: of that name, where one is given. A name that is not
    trained on, or is known without a split, begins at index 0.

    Raises:
        EnvironmentFault: no name is given, and the environment has no split with these options.
    """
    name, index = config.task.name, config.task.index
    try:
        trained = split(config.env.name, config.env.options).train
    except EnvironmentFault:
        if name is None:
            raise
        trained = []
    named = (task for task in trained if name in (None, task.name))
    first = next(named, Task(config.env.name, name or "", 0))
    return Task(config.env.name, first.name, first.index if index is None else index)


def split(env: str, options: Mapping[str, Any]) -> Split:
    """`envs.splits`, whose error also says that a task can be named instead."""
    try:
        return envs.splits(env, **options)
    except UnknownTask as error:
        raise UnknownTask(f"{error}; or name a task: task.name=... task.index=...") from None
