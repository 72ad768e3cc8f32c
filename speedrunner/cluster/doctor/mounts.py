"""File systems: of which type the one of a folder is, and what is left of the user's quota there."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

MOUNTS = Path("/proc/self/mountinfo")

NETWORK = re.compile(
    r"nfs|lustre|gpfs|beegfs|ceph|cifs|smb|afs|panfs|pvfs|orangefs|weka|glusterfs|fuse\.sshfs|9p|virtiofs"
)
"""Beginnings of the types that other machines share."""

QUOTA_S = 20.0
"""Longest wait for a program that tells quotas, which asks another machine."""


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


class Quota(msgspec.Struct, frozen=True):
    """What a user has of a file system, and may have; limits of 0 are none.

    Attributes:
        used_kb, most_kb: kibibytes.
        used_files, most_files: files and folders.
    """

    place: str
    used_kb: int
    most_kb: int
    used_files: int
    most_files: int

    @property
    def share(self) -> float:
        """How much is used, of that limit which is nearer."""
        limits = ((self.used_kb, self.most_kb), (self.used_files, self.most_files))
        return max((used / most for used, most in limits if most), default=0.0)


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


def quotas(folder: Path) -> Iterator[Quota]:
    """The user's quotas, as far as the programs that are installed tell them."""
    place = str(nearest(folder.absolute()))
    if mount_of(folder).type == "lustre":
        yield from _table("lfs", "quota", "-q", "-u", getpass.getuser(), place)
    else:
        yield from _table("quota", "-w", "-p")


def _table(*command: str) -> Iterator[Quota]:
    """The rows of a program's table: place, blocks used, quota, limit, grace; the same of files."""
    if shutil.which(command[0]) is None:
        return
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=QUOTA_S)
    except (OSError, subprocess.SubprocessError):
        return
    for line in done.stdout.splitlines():
        cells = [each.rstrip("*") for each in line.split()]  # a star marks what is beyond its quota
        if len(cells) != 9 or not all(cells[n].isdigit() for n in (1, 2, 3, 5, 6, 7)):
            continue
        blocks, soft_kb, hard_kb, files, soft_files, hard_files = (int(cells[n]) for n in (1, 2, 3, 5, 6, 7))
        yield Quota(cells[0], blocks, soft_kb or hard_kb, files, soft_files or hard_files)
