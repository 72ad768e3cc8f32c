"""Processes of the system, as tests watch them: each question has an answer also where one has just ended."""

from __future__ import annotations

import time

import psutil


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


def all_end(processes: list[psutil.Process]) -> bool:
    """Whether all end within a minute."""
    deadline = time.monotonic() + 60
    while any(runs(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def words(process: psutil.Process) -> str:
    """Its command line; none where it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie too
        return ""
