"""Resources and levels of sandboxes for untrusted code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MIB = 2**20

CPU_S = 3_600
"""CPU seconds of one process, twice the paper's wall clock of an episode; the worker's limits are lower."""

OPEN_FILES = 64
"""Open files of one process."""

INSTEAD = "set sandbox.kind=rlimits to run skills without isolation, where they can read all your files"


Level = Literal["bubblewrap", "namespaces", "rlimits"]
"""How a process is confined: bubblewrap or user namespaces isolate it from the machine, `rlimits` limits only
its resources."""

Kind = Literal["isolated"] | Level
"""The configured kind: `isolated` means the first isolating level that works here."""


class SandboxError(Exception):
    """A sandboxed process did not start, or does not answer as it should."""


class SandboxUnavailable(SandboxError):
    """The configured kind of sandbox cannot run on this machine."""


class SandboxNotStarted(SandboxError):
    """A process did not start this time. The machine may be full, and a later one may start."""


@dataclass(frozen=True)
class Sandbox:
    """How untrusted code is confined.

    Attributes:
        kind: in which way.
        memory_mb: address space of one process, in MiB.
    """

    kind: Kind = "isolated"
    memory_mb: int = 1024

    def resources(self) -> dict[str, int]:
        """Return the resource limits by the kernel's names. The process sets them itself before it runs
        untrusted code."""
        return {
            "AS": self.memory_mb * MIB,
            "CPU": CPU_S,
            "NOFILE": OPEN_FILES,
            "CORE": 1,  # byte, too little for a file; and no program can be started to receive the core
            "SIGPENDING": 0,
        }
