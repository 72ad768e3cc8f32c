"""Ask a question that may never be answered: a child process asks it, which can be killed."""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Callable
from pathlib import Path


def answer_in_child(ask: Callable[[], bytes], seconds: float, memory: int | None = None) -> bytes | None:
    """Return what a function returns in a forked child, which is killed after a time.

    The function must import nothing: another thread's import would never end in the child.

    Args:
        ask: returns the answer; not empty.
        seconds: time for the answer.
        memory: most bytes of address space in addition to those in use; `None`: no further limit.

    Returns:
        The answer; empty if the child ended without one, and `None` if there is none in time.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, 2 * seconds)  # ends it if its parent was killed
            if memory is not None:
                soft, hard = resource.getrlimit(resource.RLIMIT_AS)
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                most = pages * resource.getpagesize() + memory
                resource.setrlimit(resource.RLIMIT_AS, (most if soft < 0 else min(most, soft), hard))
            os.write(writer, ask())
        finally:
            os._exit(0)
    os.close(writer)
    has_answered = False
    try:
        with os.fdopen(reader, "rb") as pipe:
            has_answered = bool(select.select([pipe], [], [], seconds)[0])
            return pipe.read() if has_answered else None
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0 if has_answered else os.WNOHANG)  # a driver may keep it from ending
