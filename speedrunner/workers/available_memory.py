"""The memory available to workers: the machine's, or the part that the batch system allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

MB = 1_000_000
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def available_mb() -> int:
    """Return the megabytes that can be used without swapping.

    A control group with a limit, such as a batch job's, may allow less than the machine has. Only control
    groups of version 2 are read.
    """
    return min([psutil.virtual_memory().available, *_free_in_cgroups()]) // MB


def _free_in_cgroups() -> Iterator[int]:
    """Yield the free bytes of each limited control group of this process; its file cache counts as free."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for path in (line.removeprefix("0::/") for line in lines if line.startswith("0::/")):
        for folder in (CGROUPS / path, *(CGROUPS / parent for parent in Path(path).parents)):
            with suppress(OSError, ValueError, KeyError):  # the outermost has no limit, others may have "max"
                limit = int((folder / "memory.max").read_text())
                used = int((folder / "memory.current").read_text())
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield max(0, limit - used + int(statistics["inactive_file"]))
