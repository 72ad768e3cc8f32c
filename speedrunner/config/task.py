"""The one task that a configuration names."""

from __future__ import annotations

import envs
from envs import Task
from speedrunner.config.schema import Config


def chosen_task(config: Config) -> Task:
    """The task that `task.name` and `task.index` name; what they leave out is the first training task's.

    Raises:
        EnvironmentFault: something was left out, and the environment has no split with these options.
    """
    name, index = config.task.name, config.task.index
    if name is None or index is None:
        tasks = envs.splits(config.env.name, **config.env.options).train
        first = next((task for task in tasks if name in (None, task.name)), tasks[0])
        name = first.name if name is None else name
        index = first.index if index is None else index
    return Task(config.env.name, name, index)
