"""The process in which an environment is checked; `speedrunner.hosts.env_check` starts it and listens to it.

Its first argument is the number of the connection on which it gets its `Job` and answers.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import psutil

import envs
from envs import EnvironmentFault, Opening, Outcome, Split, Task, TextEnv
from envs.conformance import findings, played_tasks, raised
from envs.random_play import trace
from envs.signatures import shown
from speedrunner.config.task import split

ENDING_S = 2.0
"""Seconds that an environment's processes are given to end after `close`."""


class Job(msgspec.Struct, frozen=True):
    """What one process does.

    Attributes:
        env: name of the environment, as for `envs.make`.
        options: the environment's.
        task: the one to play; `None` for two of the split's.
        calls: primitive calls of each play.
        backwards: whether the second task is played first.
        in_full: whether all promises are checked first, or the tasks only played.
    """

    env: str
    options: dict[str, Any]
    task: Task | None
    calls: int
    backwards: bool = False
    in_full: bool = False


class Doing(msgspec.Struct, tag=True, frozen=True):
    """What the process does from now on: a call of the environment, or what goes before the first one."""

    what: str
    is_call: bool = True


class Finding(msgspec.Struct, tag=True, frozen=True):
    """A promise that is not kept."""

    text: str


class Played(msgspec.Struct, tag=True, frozen=True):
    """The trace of one task."""

    task: Task
    trace: list[dict[str, str]]


class Refused(msgspec.Struct, tag=True, frozen=True):
    """There is nothing to check: what was asked for does not exist."""

    text: str


class Done(msgspec.Struct, tag=True, frozen=True):
    """The process has come to its end."""


Message = Doing | Finding | Played | Refused | Done


class _Watched(TextEnv):
    """An environment that says what it is about to do."""

    def __init__(self, env: TextEnv, connection: Connection) -> None:
        self._env = env
        self._connection = connection
        self.name = env.name  # type: ignore[misc]  # elsewhere the class has it
        self.primitives, self.description, self.limits = env.primitives, env.description, env.limits

    def reset(self, task: Task) -> Opening:
        self._say(f"reset: {task}")
        return self._env.reset(task)

    def call(self, name: str, **arguments: Any) -> str | None:
        given = ", ".join(f"{parameter}={shown(value)}" for parameter, value in arguments.items())
        self._say(f"call: {name}({given})")
        return self._env.call(name, **arguments)

    def surroundings(self) -> str | None:
        self._say("surroundings")
        return self._env.surroundings()

    @property
    def done(self) -> bool:
        self._say("done")
        return self._env.done

    def outcome(self) -> Outcome:
        self._say("outcome")
        return self._env.outcome()

    def snapshot(self) -> dict[str, Any] | None:
        self._say("snapshot")
        return self._env.snapshot()

    def close(self) -> None:
        self._say("close")
        self._env.close()

    def _say(self, what: str) -> None:
        _send(self._connection, Doing(what))


def _send(connection: Connection, message: Message) -> None:
    connection.send_bytes(msgspec.json.encode(message))


def _carry_out(job: Job, connection: Connection) -> None:
    """Do the job, and say what comes of it."""
    _send(connection, Doing("splits", is_call=False))
    tasks = job.task or split(job.env, job.options)
    wrong = False
    if job.in_full:
        for text in findings(_made(job, connection), tasks, calls=job.calls):
            _send(connection, Finding(text))
            wrong = True
    if not wrong:
        _play(job, tasks, connection)
    _send(connection, Doing("close"))
    if left := _processes_left():
        _send(connection, Finding(f"close: leaves processes behind: {left}"))


def _made(job: Job, connection: Connection) -> TextEnv:
    _send(connection, Doing("the constructor", is_call=False))
    return _Watched(envs.make(job.env, **job.options), connection)


def _play(job: Job, tasks: Split | Task, connection: Connection) -> None:
    env = _made(job, connection)
    order = dict.fromkeys(played_tasks(tasks))
    try:
        for task in reversed(order) if job.backwards else order:
            _send(connection, Played(task, trace(env, task, calls=job.calls)))
        env.close()
    except Exception as error:  # an environment under test may raise anything
        _send(connection, Finding(f"in another process or order, {raised(env, error)}"))


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


def _adopt_orphans() -> None:
    """Have processes whose parents have ended become children of this one, so that they are seen."""
    if sys.platform == "linux":
        child_subreaper = 36  # PR_SET_CHILD_SUBREAPER
        ctypes.CDLL(None, use_errno=True).prctl(child_subreaper, 1)


def main() -> None:
    """Do one job; see `speedrunner.hosts.env_check`."""
    _adopt_orphans()
    connection = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    job = msgspec.json.decode(connection.recv_bytes(), type=Job)
    try:
        _carry_out(job, connection)
    except EnvironmentFault as error:
        _send(connection, Refused(str(error)))
    except Exception as error:  # what `findings` does not catch
        _send(connection, Finding(f"splits or the constructor raised {type(error).__name__}: {error}"))
    _send(connection, Done())


if __name__ == "__main__":
    main()
