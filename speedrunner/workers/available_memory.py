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


def own_cgroups(old: str | None = None) -> Iterator[Path]:
    """Yield the folders of this process's control groups of version 2, innermost first.

    Args:
        old: a controller; its control groups of version 1 are included as well.
    """
    with suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number != "0" and controllers != old:
                continue
            root = CGROUPS if number == "0" else CGROUPS / controllers
            own = Path(path.lstrip("/"))
            yield from (root / group for group in (own, *own.parents))


def _free_in_cgroups() -> Iterator[int]:
    """Yield the free bytes of each limited control group of this process; its file cache counts as free."""
    for folder in own_cgroups():
        with suppress(OSError, ValueError, KeyError):  # the outermost has no limit, others may have "max"
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            lines = (folder / "memory.stat").read_text().splitlines()
            statistics = dict(each.split() for each in lines)
            yield max(0, limit - used + int(statistics["inactive_file"]))
