"""File systems: which one a folder is on, and of which type it is."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

MOUNTS = Path("/proc/self/mountinfo")

NETWORK = re.compile(
    r"nfs|lustre|gpfs|beegfs|ceph|cifs|smb|afs|panfs|pvfs|orangefs|weka|glusterfs|fuse\.sshfs|9p|virtiofs"
)
"""Beginnings of the types that other machines share."""


class Mount(msgspec.Struct, frozen=True):
    """Where a file system is mounted, and its type as the kernel calls it."""

    place: Path
    type: str

    @property
    def is_shared(self) -> bool:
        """Whether other machines serve or share it."""
        return NETWORK.match(self.type) is not None

    @property
    def is_memory(self) -> bool:
        """Whether it is gone when the machine, and often the job, ends."""
        return self.type in ("tmpfs", "ramfs")


def nearest(path: Path) -> Path:
    """The path itself, or the folder above it that exists, as far as this user may look."""
    # `Path.exists` raises below a folder of others.
    return next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110


def mount_of(path: Path) -> Mount:
    """The file system that a path is, or would be, on."""
    resolved = nearest(path.absolute()).resolve()
    found = Mount(Path("/"), "unknown")
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        place = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4]))
        if resolved.is_relative_to(place) and len(place.parts) >= len(found.place.parts):
            found = Mount(place, after.split()[0])  # a later one covers an earlier one
    return found
