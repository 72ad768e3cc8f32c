"""Checks an environment in a worker's process, for `speedrunner.workers.environment_check`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress

import psutil

import envs
from envs import EnvironmentFault, Split, Task
from envs.class_registry import in_one_line, place
from envs.conformance import check_env, played_tasks
from envs.env_registry import REGISTRY
from envs.random_play import trace, trace_hash
from envs.watched import Watched
from speedrunner.config.named import split
from speedrunner.workers.sandbox.child.values import valid_text
from speedrunner.workers.worker_messages import (
    Broken,
    Check,
    Checking,
    Fault,
    Hashed,
    HashPlays,
    Played,
    Ready,
    Reply,
)

ENDING_S = 2.0
"""Seconds that an environment's processes have to end after `close`."""

CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER

Say = Callable[[Reply], None]


def check(job: Check | HashPlays, say: Say) -> None:
    """Do the job and report its findings. A `Fault` means that there is nothing to check."""
    # Processes that lose their parent become children of this one, so that they are found.
    ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1)
    doing = ""

    def told(message: Reply) -> None:
        nonlocal doing
        if isinstance(message, Checking):
            doing = message.what
        say(message)

    try:
        if isinstance(job, Check):
            _carry_out(job, told)
        else:
            _hash_plays(job, told)
    except EnvironmentFault as error:
        say(Fault(valid_text(str(error)), traceback=""))
    except Exception as error:  # anything that `check_env` does not catch
        say(Broken(f"{doing} raised {in_one_line(error)} ({place(error)})"))
    say(Ready())


def _carry_out(job: Check, say: Say) -> None:
    say(Checking("splits", is_call=False))
    tasks = job.task or split(job.env, job.options)
    wrong = False
    if job.number == 0:
        for text in check_env(_make_env(job, say), tasks, calls=job.calls):
            say(Broken(text))
            wrong = True
        if not wrong:  # otherwise it may report the same again
            say(Checking("preload", is_call=False))
            REGISTRY.find(job.env).preload()
    if not wrong:
        _play(job, tasks, say)
    say(Checking("close"))
    if left := _processes_left():
        say(Broken(f"close: processes still run: {left}"))


def _hash_plays(job: HashPlays, say: Say) -> None:
    env = _make_env(job, say)
    plays = list(enumerate(job.tasks))
    for seed, task in reversed(plays) if job.number % 2 else plays:
        say(Hashed(seed, trace_hash(env, task, calls=job.calls, seed=seed)))
    env.close()


def _make_env(job: Check | HashPlays, say: Say) -> Watched:
    say(Checking("the constructor", is_call=False))
    return Watched(envs.make(job.env, **job.options), lambda what: say(Checking(what)))


def _play(job: Check, tasks: Split | Task, say: Say) -> None:
    env = _make_env(job, say)
    order = dict.fromkeys(played_tasks(tasks))
    try:
        for task in reversed(order) if job.number % 2 else order:
            say(Played(task, trace(env, task, calls=job.calls)))
        env.close()
    except Exception as error:  # an environment under test may raise anything
        say(Broken(f"in another process or order, {env.describe_error(error)}"))


def _processes_left() -> str:
    """Return the names of processes below this one that do not end, and end them."""
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=ENDING_S)
    names: dict[str, int] = {}
    for each in alive:
        with suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                names[each.name()] = names.get(each.name(), 0) + 1
                each.kill()
    return ", ".join(f"{number} of {name}" for name, number in names.items())
