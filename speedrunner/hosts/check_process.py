"""How an environment is checked in a host's process; `speedrunner.hosts.env_check` asks for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

import envs
from envs import EnvironmentFault, Opening, Outcome, Split, Task, TextEnv
from envs.conformance import findings, played_tasks, raised
from envs.random_play import trace
from speedrunner.config.named import split
from speedrunner.hosts.hosted_episode import fault
from speedrunner.hosts.messages import Check, Checking, Finding, Played, Ready, Reply
from typed.values import shown

ENDING_S = 2.0
"""Seconds that an environment's processes are given to end after `close`."""

CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER

Say = Callable[[Reply], None]


def check(job: Check, say: Say) -> None:
    """Do the job, and say what comes of it; a `Fault` says that there is nothing to check."""
    # Processes whose parents have ended become children of this one, so that they are seen.
    ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1)
    try:
        _carry_out(job, say)
    except EnvironmentFault as error:
        say(fault(error, job.env))
    except Exception as error:  # what `findings` does not catch
        say(Finding(f"splits or the constructor raised {type(error).__name__}: {error}"))
    say(Ready())


class _Watched(TextEnv):
    """An environment that says what it is about to do."""

    def __init__(self, env: TextEnv, say: Say) -> None:
        self._env = env
        self._say = say
        self.name = env.name  # type: ignore[misc]  # elsewhere the class has it
        self.primitives, self.description, self.limits = env.primitives, env.description, env.limits

    def reset(self, task: Task) -> Opening:
        return self._told(f"reset: {task}").reset(task)

    def call(self, name: str, **arguments: Any) -> str | None:
        given = ", ".join(f"{parameter}={shown(value)}" for parameter, value in arguments.items())
        return self._told(f"call: {name}({given})").call(name, **arguments)

    def surroundings(self) -> str | None:
        return self._told("surroundings").surroundings()

    @property
    def done(self) -> bool:
        return self._told("done").done

    def outcome(self) -> Outcome:
        return self._told("outcome").outcome()

    def snapshot(self) -> dict[str, Any] | None:
        return self._told("snapshot").snapshot()

    def close(self) -> None:
        self._told("close").close()

    def _told(self, what: str) -> TextEnv:
        self._say(Checking(what))
        return self._env


def _carry_out(job: Check, say: Say) -> None:
    say(Checking("splits", is_call=False))
    tasks = job.task or split(job.env, job.options)
    wrong = False
    if job.number == 0:
        for text in findings(_made(job, say), tasks, calls=job.calls):
            say(Finding(text))
            wrong = True
    if not wrong:
        _play(job, tasks, say)
    say(Checking("close"))
    if left := _processes_left():
        say(Finding(f"close: leaves processes behind: {left}"))


def _made(job: Check, say: Say) -> TextEnv:
    say(Checking("the constructor", is_call=False))
    return _Watched(envs.make(job.env, **job.options), say)


def _play(job: Check, tasks: Split | Task, say: Say) -> None:
    env = _made(job, say)
    order = dict.fromkeys(played_tasks(tasks))
    try:
        for task in reversed(order) if job.number % 2 else order:
            say(Played(task, trace(env, task, calls=job.calls)))
        env.close()
    except Exception as error:  # an environment under test may raise anything
        say(Finding(f"in another process or order, {raised(env, error)}"))


def _processes_left() -> str:
    """Name the processes below this one that do not end, and end them."""
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=ENDING_S)
    names: dict[str, int] = {}
    for each in alive:
        with suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                names[each.name()] = names.get(each.name(), 0) + 1
                each.kill()
    return ", ".join(f"{number} of {name}" for name, number in names.items())
