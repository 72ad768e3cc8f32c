"""Checks an environment in separate workers.

This also detects environments that hang, end their process, leave processes behind, or differ in their texts
from process to process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
import psutil

from envs import Task
from envs.random_play import difference
from speedrunner.workers.env_worker import WorkerDied, WorkerTimedOut
from speedrunner.workers.fork_server import START_LIMIT_S, ForkServer
from speedrunner.workers.process_worker import ProcessWorker
from speedrunner.workers.worker_messages import Broken, Check, Checking, Hashed, HashPlays, Played

PROCESSES = 3
"""Number of processes that play the same tasks. Each one's number is its `PYTHONHASHSEED`, which determines
the order of sets."""


async def findings_in_workers(job: Check, limit_s: float) -> AsyncIterator[str]:
    """Check an environment: in full in one process, then with plays in other processes that must give the
    same texts.

    Args:
        job: the environment to check, and how; its number is set here.
        limit_s: seconds that one call of the environment may take.

    Yields:
        One line for each broken promise.

    Raises:
        WorkerFault: there is no such environment, option or split.
    """
    known: dict[Task, list[dict[str, str]]] = {}
    for number in range(PROCESSES):
        wrong = False
        for message in await _run_job(msgspec.structs.replace(job, number=number), limit_s):
            if isinstance(message, Broken):
                wrong = True
                yield message.text
            elif isinstance(message, Played):
                first = known.setdefault(message.task, message.trace)
                if found := difference(first, message.trace):
                    yield f"determinism: {message.task}, replayed in another process or order, {found}"
                    return
        if wrong:
            return


async def hashes_in_workers(job: HashPlays, limit_s: float) -> list[str] | str:
    """Hash an environment's random plays in several processes.

    Args:
        job: the environment and its plays; the number is set here.
        limit_s: seconds that one call of the environment may take.

    Returns:
        The hashes by seed; or one line, if the environment breaks or the processes differ.

    Raises:
        WorkerFault: there is no such environment or option.
    """
    known: dict[int, str] = {}
    for number in range(PROCESSES):
        for message in await _run_job(msgspec.structs.replace(job, number=number), limit_s):
            if isinstance(message, Broken):
                return message.text
            assert isinstance(message, Hashed)
            if known.setdefault(message.seed, message.hash) != message.hash:
                return (
                    f"determinism: seed {message.seed} ({job.tasks[message.seed]}) has the hash"
                    f" {known[message.seed]} in one process and {message.hash} in another"
                )
    return [known[seed] for seed in range(len(job.tasks))]


async def _run_job(job: Check | HashPlays, limit_s: float) -> list[Broken | Played | Hashed]:
    """Run a job in a new process. If the process ends early or does not answer, that is a finding."""
    said: list[Broken | Played | Hashed] = []
    doing = Checking("loading", is_call=False)
    try:
        template = await ForkServer(job.env, hash_seed=job.number, shown=True).loaded()
        try:
            worker = await template.fork()
        finally:
            template.end()
        try:
            reply = await worker.request(job, None)
            while isinstance(reply, Checking | Broken | Played | Hashed):
                if isinstance(reply, Checking):
                    doing = reply
                else:
                    said.append(reply)
                async with asyncio.timeout(limit_s if doing.is_call else START_LIMIT_S):
                    reply = await worker.receive(None, doing.what)
        finally:
            _end(worker)
    except (TimeoutError, WorkerTimedOut):
        limit_s = limit_s if doing.is_call else START_LIMIT_S
        said.append(Broken(f"{doing.what} did not return within {limit_s:g} s"))
    except WorkerDied as died:
        said.append(Broken(f"{doing.what} ended the process ({died.cause})"))
    return said


def _end(worker: ProcessWorker) -> None:
    """End the process and those below it, in whatever process group they are."""
    below: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(worker.pid).children(recursive=True)
    worker.kill()
    for each in below:
        with suppress(psutil.NoSuchProcess):
            each.kill()
