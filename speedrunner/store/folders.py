"""Whole folders: they are filled under a hidden name and then renamed, so a kill leaves all or nothing.

Two processes must not create the same folder at once.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from speedrunner.store.files import (
    FOLDER_MODE,
    StorageError,
    explain_errors,
    sync,
    sync_folder,
    temporary_name,
)


def check_new(folder: Path, option: str = "--out") -> None:
    """Raise `StorageError` if a folder that was named with an option is not missing or empty."""
    with explain_errors(folder, "read"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise StorageError(f"{folder} is not an empty folder: name another one with {option}")


@contextmanager
def record_folder(final: Path) -> Iterator[Path]:
    """Yield a hidden folder for records to fill. At the end it survives a power cut and becomes `final`,
    which must be missing or empty. It is for its owner only.

    Raises:
        StorageError: the disk refuses, or `final` has content, which is never changed.
    """
    with _filled(final, FOLDER_MODE) as hidden:
        yield hidden
        with explain_errors(final, "written"):
            for path in (*hidden.rglob("*"), hidden):
                if path.is_dir():
                    sync_folder(path)
                else:
                    sync(path)
    with explain_errors(final, "written"):
        sync_folder(final.parent)


@contextmanager
def output_folder(folder: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a hidden folder for an output of a command, which can be made again. At the end it becomes
    `folder`, which must be missing or empty, or a link to such a place.

    Args:
        mode: its permissions, from which the umask is subtracted.

    Raises:
        StorageError: the disk refuses, or the folder is neither missing nor empty.
    """
    with _filled(folder.resolve(), mode) as hidden:
        yield hidden


@contextmanager
def _filled(final: Path, mode: int) -> Iterator[Path]:
    """Create a hidden folder; rename it at the end, and remove it after an error."""
    hidden = temporary_name(final)
    with explain_errors(final, "written"):
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(hidden, ignore_errors=True)  # of a killed process
    with explain_errors(hidden, "made"):
        hidden.mkdir(mode=mode)
    try:
        yield hidden
        with explain_errors(final, "written"):
            if final.exists() and any(final.iterdir()):
                raise FileExistsError(errno.EEXIST, "it already exists and is not empty")
            hidden.rename(final)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
