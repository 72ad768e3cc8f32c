"""Checksums: length and digest of what of a run is recorded for good. `state.json` holds them.

Files that never change are covered by a checksum whole. Files that are appended to are covered by a checksum
as far as they have grown, so that what is appended later breaks no checksum. A torn tail is never covered by
a checksum, nor is a sleep that may be slept again. A checksum that stands is never made anew from what the
disk holds: what somebody has changed stays broken.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from speedrunner.store import files

if TYPE_CHECKING:
    from hashlib import _Hash

WHOLE = ("config.yaml", "policies/v*/*", "sleeps/*.json")
APPENDED = (
    *("processes.jsonl", "episodes.jsonl", "requests.jsonl", "reconciliation.jsonl"),
    *("trajectories/*.jsonl", "evaluations/*.jsonl"),
)
"""What is covered by a checksum of a run's directory; logs are not."""

BLOCK = 2**20


class Checksum(msgspec.Struct, frozen=True):
    """A file's first `size` bytes, and their SHA-256."""

    size: int
    sha256: str


class ChecksumKeeper:
    """Checksums a directory's files for the one process that writes them; of what it appends, each byte is
    read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # How far files had grown when the last append was done: another one may be going on.
        self._sizes = {name: (root / name).stat().st_size for name in _names(root, APPENDED)}
        self._digests: dict[str, tuple[int, _Hash] | None] = {}
        """Of what was covered by a checksum; `None` where that is not what was covered by a checksum
        before.
        """

    def grew(self, path: Path, size: int) -> None:
        """Note an append that is done, and how long the file is now."""
        self._sizes[str(path.relative_to(self._root))] = size

    def checksums(self, before: Mapping[str, Checksum]) -> dict[str, Checksum]:
        """The checksums of all that is recorded by now, in the place of those `before`.

        What cannot be read, or is not as it was covered by a checksum, keeps the checksum that it has.
        """
        found = dict(before)
        for name in _names(self._root, WHOLE):
            if name not in found and self._stays(name):
                with suppress(files.StorageError):
                    digest = hashlib.sha256()
                    found[name] = Checksum(_digest(self._root / name, 0, None, digest), digest.hexdigest())
        for name, size in sorted(self._sizes.items()):
            old = found.get(name)
            if old is None or size > old.size:
                with suppress(files.StorageError):
                    files.sync(self._root / name)  # a power cut must not leave a checksum of what is lost
                    found |= self._grown(name, old, size)
        return found

    def _stays(self, name: str) -> bool:
        """Whether a file is there for good: a sleep's record is when its policy is."""
        folder, _, number = name.removesuffix(".json").partition("/")
        return folder != "sleeps" or (self._root / "policies" / f"v{number}").is_dir()

    def _grown(self, name: str, old: Checksum | None, size: int) -> dict[str, Checksum]:
        """The checksum of an appended file's first bytes; none where they are not those that were covered
        by a checksum.
        """
        path = self._root / name
        if name not in self._digests:
            digest, start = hashlib.sha256(), 0
            if old is not None:
                start = _digest(path, 0, old.size, digest)
            sound = old is None or old == Checksum(start, digest.hexdigest())
            self._digests[name] = (start, digest) if sound else None
        if (known := self._digests[name]) is None:
            return {}
        start, digest = known[0], known[1].copy()
        read = _digest(path, start, size, digest)
        self._digests[name] = read, digest
        return {name: Checksum(read, digest.hexdigest())}


def broken(
    root: Path, checksums: Mapping[str, Checksum], check_time: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, str]]:
    """Yield the files that are not as they were covered by a checksum, and in what.

    Args:
        check_time: is called for each `BLOCK` bytes; a file with holes may have terabytes.
    """
    for name, seal in sorted(checksums.items()):
        path, digest = root / name, hashlib.sha256()
        if Path(name).is_absolute() or ".." in Path(name).parts:
            yield name, "is no file of a run"
            continue
        try:
            read = _digest(path, 0, seal.size, digest, check_time)
            grown = path.stat().st_size - read if not name.endswith(".jsonl") else 0
        except (files.StorageError, OSError) as error:
            yield name, "is missing" if _is_missing(error) else str(error)
            continue
        if read < seal.size:
            yield name, f"has {read} bytes, and {seal.size} were covered by a checksum"
        elif grown:
            yield name, f"has {grown} bytes more than the {seal.size} that were covered by a checksum"
        elif digest.hexdigest() != seal.sha256:
            yield (
                name,
                f"is not as it was covered by a checksum: of its {seal.size} bytes at least one is another",
            )


def without_checksum(root: Path, checksums: Mapping[str, Checksum]) -> dict[str, int]:
    """Bytes that no checksum covers, by file: of a process that was killed, or goes on."""
    sizes = {name: (root / name).stat().st_size for name in _names(root, (*WHOLE, *APPENDED))}
    rest = {name: size - (checksums[name].size if name in checksums else 0) for name, size in sizes.items()}
    return {name: size for name, size in rest.items() if size > 0 or name not in checksums}


def _names(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """The files that match, by their places below the root."""
    paths = (path for pattern in patterns for path in root.glob(pattern))
    return [str(path.relative_to(root)) for path in paths if path.is_file() and not files.is_leftover(path)]


def _digest(
    path: Path,
    start: int,
    end: int | None,
    digest: _Hash,
    check_time: Callable[[], None] = lambda: None,
) -> int:
    """Add a stretch of a file to a digest; returns where it ended, at the latest at the file's end."""
    with files.explained(path, "read"), os.fdopen(files.open_regular(path, os.O_RDONLY), "rb") as file:
        file.seek(start)
        while block := file.read(BLOCK if end is None else min(BLOCK, end - start)):
            check_time()
            digest.update(block)
            start += len(block)
    return start


def _is_missing(error: Exception) -> bool:
    return isinstance(error.__cause__ or error, FileNotFoundError)
