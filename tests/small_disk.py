"""A file system that soon is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class SmallDisk:
    """A folder with a file system of its own, where mounting is allowed."""

    folder: Path
    is_mounted: bool

    def grow(self) -> None:
        """Make room."""
        if self.is_mounted:
            subprocess.run(["mount", "-o", "remount,size=16m", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[SmallDisk]:
    """Make the folder, and mount a file system of this size there until the end of the context."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield SmallDisk(folder, is_mounted)
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], check=True)
