"""Processes of the system, as tests watch them: each question has an answer also where one has just ended."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from serving.model_configs import CHECKOUT

HANGS_S = 1800.0
"""Seconds after which a process or an answer counts as missing: many times what a busy machine takes."""

GROWING_S = (0.3, 3.0, 30.0, 300.0)
"""Time limits in seconds for code that never ends. A test tries one after the other until the code gets far
enough. The first one is too short only on a busy machine."""


def tree(pid: int | None) -> list[psutil.Process]:
    """A process and all below it."""
    assert pid is not None
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def runs(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie does not: only its parent has not looked yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs."""
    try:
        return runs(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def marked(text: str) -> dict[int, tuple[str, int]]:
    """State (R: runs, S: waits, T: is stopped) and group of processes with this text in the command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # others end as they are looked at
            if text.encode() in (path / "cmdline").read_bytes():
                state, _, group, *_ = (path / "stat").read_text().rpartition(")")[2].split()
                found[int(path.name)] = state, int(group)
    return {pid: (state, group) for pid, (state, group) in found.items() if state != "Z"}


def states(group: int) -> set[str]:
    """The states of a group's processes, as `marked` has them."""
    return {state for state, its_group in marked("").values() if its_group == group}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what is bound to happen; the limit only ends a failing test."""
    async with asyncio.timeout(HANGS_S):
        while not condition():  # noqa: ASYNC110 - another process tells no event
            await asyncio.sleep(0.01)


def all_end(processes: list[psutil.Process]) -> bool:
    """Whether all end."""
    deadline = time.monotonic() + HANGS_S
    while any(runs(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def without_file_descriptors() -> Iterator[None]:
    """This process can open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1, hard)
    )
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def words(process: psutil.Process) -> str:
    """Its command line; none where it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie too
        return ""


def in_namespaces(line: str, *others: str) -> str:
    """What a line of shell prints as root of a user namespace of its own, whose settings are no one else's.

    Args:
        others: what else it has for itself, as `unshare` calls it: `--net`.
    """
    unshare = ["unshare", "--user", "--map-root-user", *others]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make user namespaces")
    done = subprocess.run(
        [*unshare, "sh", "-c", line], cwd=CHECKOUT, capture_output=True, text=True, timeout=HANGS_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def timers() -> list[asyncio.TimerHandle]:
    """The event loop's timers that will still run."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [timer for timer in scheduled if not timer.cancelled()]
