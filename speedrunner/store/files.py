"""Whole files and folders that survive a kill, a full disk and a network file system.

They are written under a temporary name in the same folder and then renamed, so they exist completely or not
at all. Created files are accessible to their owner only, except for those with `SHARED_MODE`.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

RECORD_BYTES = 64 * 2**20
"""Maximum bytes of one record, a line or a whole file; longer ones are refused."""

FILE_MODE, FOLDER_MODE, SHARED_MODE = 0o600, 0o700, 0o666
OUTPUT_MODE = 0o777
"""Permissions of an output of a command, from which the umask is subtracted."""

_ADVICE = "run the same command again; nothing recorded was lost"
_REMEDIES = {
    errno.ENOSPC: f"the disk is full: free some space and {_ADVICE}",
    errno.EDQUOT: f"the disk quota is full: free some space and {_ADVICE}",
    errno.EFBIG: f"it would exceed the file size limit: raise the limit and {_ADVICE}",
    errno.EROFS: f"the file system is read-only: make it writable and {_ADVICE}",
}


class StorageError(Exception):
    """A file or folder could not be read or written, or has unexpected content."""


@contextmanager
def explain_errors(path: Path, verb: str) -> Iterator[None]:
    """Turn an `OSError` into a one-line `StorageError`: `path` could not be `verb`, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} could not be {verb}: {reason(error)}") from error


def reason(error: OSError) -> str:
    """Return why the file system refused, and what to do if known."""
    return _REMEDIES.get(error.errno or 0) or (error.strerror or str(error)).lower()


def make_folder(path: Path) -> None:
    """Create a folder for its owner only, if it is missing. Raises `StorageError`."""
    with explain_errors(path, "made"):
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def read_content(path: Path) -> bytes:
    """Return the content of a regular file of at most `RECORD_BYTES` bytes. Raises `StorageError`."""
    with explain_errors(path, "read"):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # to open a pipe would wait for ever
            raise StorageError(f"{path} could not be read: it is not a regular file")
        if status.st_size > RECORD_BYTES:
            raise StorageError(f"{path} has {status.st_size} bytes; at most {RECORD_BYTES} are read")
        with path.open("rb") as file:
            return file.read(status.st_size)


def open_log(path: Path) -> BinaryIO:
    """Open a log file for appending. Raises `StorageError`."""
    with explain_errors(path, "written"):
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE), "ab")


def sync(path: Path) -> None:
    """Wait until the data appended to `path` would survive a power cut. A missing file is fine."""
    with explain_errors(path, "written"), suppress(FileNotFoundError), path.open("rb") as file:
        os.fsync(file.fileno())


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files for other people by their paths in a folder. Missing folders are created.

    Raises `StorageError`.
    """
    for name, content in contents.items():
        path = folder / name
        with explain_errors(path.parent, "made"):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content, SHARED_MODE)


def write_atomic(path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    """Write or replace a whole file. A reader sees the old or the new content, never a part.

    Args:
        path: the file; its folder must exist.
        content: all of it.
        mode: the file's permissions, from which the umask is subtracted.

    Raises `StorageError`: the write failed; the old content is unchanged.
    """
    temporary = temporary_name(path)
    with explain_errors(path, "written"):
        try:
            write_new(temporary, content, mode)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_new(path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    """Write a file that does not exist; its content would survive a power cut. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)  # network file systems report a full disk here


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes. A partial write is retried for the error that explains it. Raises `OSError`."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def temporary_name(path: Path) -> Path:
    """Return a new temporary name for preparing `path` in the same folder; `remove_leftovers` recognizes
    it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def is_leftover(entry: Path | os.DirEntry[str]) -> bool:
    """Return whether an entry has a name of `temporary_name`; other names that end with .tmp are a user's."""
    return bool(re.fullmatch(r"\..+\.[0-9a-f]{8}\.tmp", entry.name))


def remove_leftovers(folder: Path) -> None:
    """Remove a killed process's temporary files in `folder` and one level below it."""
    with explain_errors(folder, "tidied"):
        folders = [below for below in folder.iterdir() if below.is_dir() and not below.is_symlink()]
        for path in [*folder.iterdir(), *(path for below in folders for path in below.iterdir())]:
            if not is_leftover(path):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder would survive a power cut. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems need no sync of folders
            raise
    finally:
        os.close(descriptor)


@contextmanager
def whole_folder(final: Path, mode: int = FOLDER_MODE) -> Iterator[Path]:
    """Yield a hidden folder to fill. At the end it survives a power cut and becomes `final`, which must be
    missing or empty at the start and at the end, and no link.

    Args:
        mode: its permissions, from which the umask is subtracted.

    Raises `StorageError` if the disk refuses, also in the body of the `with` statement, or if `final` has
    content. That content is never changed.
    """
    hidden = temporary_name(final)
    try:
        with explain_errors(final, "written"):
            if final.exists() and (not final.is_dir() or any(final.iterdir())):
                raise FileExistsError(errno.EEXIST, "it exists and is not an empty folder")
            final.parent.mkdir(parents=True, exist_ok=True)
            for left in final.parent.glob(f".{glob.escape(final.name)}.*.tmp"):  # by a killed process
                if is_leftover(left):
                    shutil.rmtree(left, ignore_errors=True)
            hidden.mkdir(mode=mode)
            yield hidden
            for path in (*hidden.rglob("*"), hidden):
                if path.is_dir():
                    sync_folder(path)
                else:
                    sync(path)
            hidden.rename(final)
            sync_folder(final.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
