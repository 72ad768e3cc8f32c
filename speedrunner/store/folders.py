"""Folders that exist completely or not at all: they are filled under a hidden name, then renamed."""

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
            raise StorageError(f"{folder} exists and is not empty: name another folder with {option}")


@contextmanager
def new_folder(folder: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield a hidden folder to fill. At the end it becomes `folder`; after an error it is removed.

    Args:
        folder: missing or empty; folders above it are created. It must not be changed afterwards.
        shared: for other people, with the permissions of the process's umask. It can be made again, so it
            may be lost in a power cut. Otherwise it is for its owner only, and synced.

    Raises:
        StorageError: the disk refuses, or the folder is neither missing nor empty.
    """
    final = folder.absolute()  # "." has no name
    hidden = temporary_name(final)
    with explain_errors(folder, "written"):
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(hidden, ignore_errors=True)  # of a killed process
        hidden.mkdir(mode=0o777 if shared else FOLDER_MODE)
        try:
            yield hidden
            for path in () if shared else (*hidden.rglob("*"), hidden):
                if path.is_dir():
                    sync_folder(path)
                else:
                    sync(path)
            if final.exists() and any(final.iterdir()):
                raise FileExistsError(errno.EEXIST, "it already exists and is never changed")
            hidden.rename(final)
            sync_folder(final.parent)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
