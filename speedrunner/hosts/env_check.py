"""An environment is checked in processes of its own.

So one that hangs, ends its process or leaves others behind is found out too, and so is one whose texts differ
from process to process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import msgspec
import psutil

from envs import EnvironmentFault, Task
from envs.random_play import difference
from speedrunner.hosts.env_check_process import Doing, Done, Finding, Job, Message, Played, Refused

HASH_SEEDS = (0, 1, 2)
"""`PYTHONHASHSEED` of each process. The order of a set of texts follows it."""

START_LIMIT_S = 180.0
"""Seconds that importing and making the environment may take, and that listing its splits may."""

POLL_S = 0.1


def findings(job: Job, limit_s: float) -> Iterator[str]:
    """Check an environment: in full in one process, then by plays in other processes that must be the same.

    Args:
        job: what is checked; how each process does it is filled in here.
        limit_s: seconds that one call of the environment may take.

    Yields:
        One line for each promise that is not kept.

    Raises:
        EnvironmentFault: there is no such environment, option or split.
    """
    known: dict[Task, list[dict[str, str]]] = {}
    for number, hash_seed in enumerate(HASH_SEEDS):
        part = msgspec.structs.replace(job, backwards=number % 2 == 1, in_full=number == 0)
        wrong = False
        for message in _messages(part, hash_seed, limit_s):
            if isinstance(message, Finding):
                wrong = True
                yield message.text
            elif found := difference(known.setdefault(message.task, message.trace), message.trace):
                yield f"determinism: {message.task}, played in another process or order, {found}"
                return
        if wrong:
            return


def _messages(job: Job, hash_seed: int, limit_s: float) -> Iterator[Finding | Played]:
    """Do a job in a new process; its end before its time, and its silence, are findings."""
    ours, theirs = Pipe()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
        "PYTHONHASHSEED": str(hash_seed),
    }
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "speedrunner.hosts.env_check_process", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),  # environments may print
            env=environment,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        doing = Doing("the start", is_call=False)
        try:
            ours.send_bytes(msgspec.json.encode(job))
            while True:
                patience_s = limit_s if doing.is_call else START_LIMIT_S
                try:
                    message = _receive(ours, process, patience_s)
                except TimeoutError:
                    yield Finding(f"{doing.what} did not return within {patience_s:g} s")
                    return
                except EOFError:
                    yield Finding(f"{doing.what} ended the process (exit status {process.wait()})")
                    return
                match message:
                    case Doing():
                        doing = message
                    case Refused():
                        raise EnvironmentFault(message.text)
                    case Done():
                        return
                    case _:
                        yield message
        finally:
            _end(process)


def _receive(connection: Connection, process: subprocess.Popen[bytes], limit_s: float) -> Message:
    """Wait for the next message. Raises `EOFError` and `TimeoutError`.

    The connection does not tell by itself that the process has ended: a copy of its other end may live on in
    a process that the environment has forked.
    """
    deadline = time.monotonic() + limit_s
    while not connection.poll(POLL_S):
        if process.poll() is not None and not connection.poll():
            raise EOFError
        if time.monotonic() > deadline:
            raise TimeoutError
    try:
        received = connection.recv_bytes()
    except OSError:
        raise EOFError from None
    message: Message = msgspec.json.decode(received, type=Message)
    return message


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and those below it, or still in its group."""
    below: list[psutil.Process] = []
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            below = psutil.Process(process.pid).children(recursive=True)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in below:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
