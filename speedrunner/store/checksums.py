"""Length and SHA-256 of everything that a run has recorded for good. `state.json` stores these checksums.

A file that never changes has a checksum of its whole content. A file that is appended to has a checksum of
its current content, so a later append does not break it. Torn tails have no checksum, and neither has a sleep
that may still be repeated. A stored checksum is never recomputed from the disk, so a changed file stays
reported as broken.
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

WHOLE = ("config.yaml", "policies/v*/*", "sleeps/*.json", "carried/**/*")
APPENDED = (
    *("processes.jsonl", "episodes.jsonl", "requests.jsonl", "tools.jsonl", "reconciliation.jsonl"),
    *("trajectories/*.jsonl", "evaluations/*.jsonl"),
)
"""Files that get checksums; logs do not."""

BLOCK = 2**20


class Checksum(msgspec.Struct, frozen=True):
    """Length and SHA-256 of a file's first `size` bytes."""

    size: int
    sha256: str


class ChecksumKeeper:
    """Computes a directory's checksums in the one process that writes it. Appended bytes are read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Sizes after the last finished append; another append may be in progress.
        self._sizes = {name: (root / name).stat().st_size for name in _names(root, APPENDED)}
        self._digests: dict[str, tuple[int, _Hash] | None] = {}
        """Position and running digest of each appended file; `None` if its content does not match its old
        checksum.
        """

    def grew(self, path: Path, size: int) -> None:
        """Note a finished append and the file's new length."""
        self._sizes[str(path.relative_to(self._root))] = size

    def checksums(self, before: Mapping[str, Checksum]) -> dict[str, Checksum]:
        """Return the checksums of everything recorded so far, to replace those in `before`.

        A file that cannot be read, or does not match its checksum, keeps the old checksum.
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
                    files.sync(self._root / name)  # a power cut must not leave a checksum of lost data
                    found |= self._grown(name, old, size)
        return found

    def _stays(self, name: str) -> bool:
        """Return whether a file is final; a sleep's record is final once its policy exists."""
        folder, _, number = name.removesuffix(".json").partition("/")
        return folder != "sleeps" or (self._root / "policies" / f"v{number}").is_dir()

    def _grown(self, name: str, old: Checksum | None, size: int) -> dict[str, Checksum]:
        """Return the new checksum of an appended file; empty if the old checksum does not match."""
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


def find_changed(
    root: Path, checksums: Mapping[str, Checksum], check_time: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, str]]:
    """Yield the files that do not match their checksums, with the difference.

    Args:
        check_time: called for each `BLOCK` bytes; a sparse file may have terabytes.
    """
    for name, checksum in sorted(checksums.items()):
        path, digest = root / name, hashlib.sha256()
        if Path(name).is_absolute() or ".." in Path(name).parts:
            yield name, "is no file of a run"
            continue
        try:
            read = _digest(path, 0, checksum.size, digest, check_time)
            may_grow = name.endswith(".jsonl") and not name.startswith("carried/")
            grown = 0 if may_grow else path.stat().st_size - read
        except (files.StorageError, OSError) as error:
            yield name, "is missing" if _is_missing(error) else str(error)
            continue
        if read < checksum.size:
            yield name, f"has {read} bytes, fewer than the {checksum.size} of its checksum"
        elif grown:
            yield name, f"has {grown} bytes more than the {checksum.size} of its checksum"
        elif digest.hexdigest() != checksum.sha256:
            yield name, f"does not match its checksum: at least one of {checksum.size} bytes has changed"


def recorded_files(root: Path) -> list[str]:
    """Return the files of a run that get checksums, relative to its directory."""
    return _names(root, (*WHOLE, *APPENDED))


def without_checksum(root: Path, checksums: Mapping[str, Checksum]) -> dict[str, int]:
    """Return the number of bytes without checksum, by file. A killed or running process has appended them."""
    sizes = {name: (root / name).stat().st_size for name in recorded_files(root)}
    rest = {name: size - (checksums[name].size if name in checksums else 0) for name, size in sizes.items()}
    return {name: size for name, size in rest.items() if size > 0 or name not in checksums}


def _names(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """Return the matching files, relative to the root."""
    paths = (path for pattern in patterns for path in root.glob(pattern))
    return [str(path.relative_to(root)) for path in paths if path.is_file() and not files.is_leftover(path)]


def _digest(
    path: Path,
    start: int,
    end: int | None,
    digest: _Hash,
    check_time: Callable[[], None] = lambda: None,
) -> int:
    """Add the bytes from `start` to `end` to a digest. Return the end, at most the file's length."""
    with files.explain_errors(path, "read"), os.fdopen(files.open_regular(path, os.O_RDONLY), "rb") as file:
        file.seek(start)
        while block := file.read(BLOCK if end is None else min(BLOCK, end - start)):
            check_time()
            digest.update(block)
            start += len(block)
    return start


def _is_missing(error: Exception) -> bool:
    return isinstance(error.__cause__ or error, FileNotFoundError)
