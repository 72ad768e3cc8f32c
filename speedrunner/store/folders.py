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

OUTPUT_MODE = 0o777
"""Permissions of an output of a command, from which the umask is subtracted."""


def check_new(folder: Path, option: str = "--out") -> None:
    """Raise `StorageError` if a folder that was named with an option is not missing or empty."""
    with explain_errors(folder, "read"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise StorageError(f"{folder} is not an empty folder: name another one with {option}")


@contextmanager
def whole_folder(final: Path, mode: int = FOLDER_MODE) -> Iterator[Path]:
    """Yield a hidden folder to fill. At the end it survives a power cut and becomes `final`, which must be
    missing or empty, and no link.

    Args:
        mode: its permissions, from which the umask is subtracted.

    Raises `StorageError` if the disk refuses, also in the body of the `with` statement, or if `final` has
    content. That content is never changed.
    """
    hidden = temporary_name(final)
    try:
        with explain_errors(final, "written"):
            final.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(hidden, ignore_errors=True)  # of a killed process
            hidden.mkdir(mode=mode)
            yield hidden
            for path in (*hidden.rglob("*"), hidden):
                if path.is_dir():
                    sync_folder(path)
                else:
                    sync(path)
            if final.exists() and any(final.iterdir()):
                raise FileExistsError(errno.EEXIST, "it already exists and is not empty")
            hidden.rename(final)
            sync_folder(final.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
