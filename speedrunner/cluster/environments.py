"""Checks whether an environment plays on this machine."""

from __future__ import annotations

import time

import envs
from envs import EnvironmentFault
from envs.env_registry import REGISTRY
from speedrunner.config.schema import ClassConfig


def open_task(env: ClassConfig) -> str:
    """Open a task: simulators and Java start, and their compiled code enters its cache.

    Returns:
        What was done, in one line.

    Raises:
        EnvironmentFault: it does not play here, or there is none with this name and options.
    """
    begun = time.monotonic()
    one = envs.make(env.name, **env.options)
    try:
        REGISTRY.find(env.name).preload()
        one.warm_up()
        try:
            task = envs.splits(env.name, **env.options).train[0]
        except EnvironmentFault as error:
            return f"it starts; none of its tasks was opened ({error})"
        one.reset(task)
        return f"{task.name}, {task.index} opens ({time.monotonic() - begun:.1f} s)"
    except EnvironmentFault:
        raise
    except Exception as error:  # a simulator may raise anything
        raise EnvironmentFault(f"{env.name} does not start: {type(error).__name__}: {error}") from error
    finally:
        one.close()
