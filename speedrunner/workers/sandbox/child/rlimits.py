"""Limits that a process sets for itself before it runs untrusted code. That code cannot raise them."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping


def confine(limits: Mapping[str, int]) -> None:
    """Set resource limits, such as `{"NOFILE": 64}`, and drop the environment variables."""
    os.environ.clear()
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, allowed = resource.getrlimit(number)
        if allowed != resource.RLIM_INFINITY:
            value = min(value, allowed)
        resource.setrlimit(number, (value, value))


def die_with(parent: int) -> None:
    """Make the kernel end this process when its parent ends, in whatever way."""
    import ctypes

    parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
