"""The folder of an export, which appears once it is complete."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from speedrunner.config.schema import InvalidConfig
from speedrunner.store.files import explain_errors, temporary_name


def check_new(folder: Path) -> None:
    """Raise `InvalidConfig` if a folder is not missing or empty, `StorageError` if it cannot be read."""
    with explain_errors(folder, "read"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidConfig(f"{folder} exists and is not empty: name another folder with --out")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield the path of a hidden folder to create and fill. At the end it replaces `folder`, which is missing
    or empty; after an error it is removed. Raises `StorageError`.
    """
    final = folder.absolute()  # "." has no name
    temporary = temporary_name(final)
    with explain_errors(folder, "written"):
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed export
        try:
            yield temporary
            if final.exists():
                final.rmdir()
            temporary.rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
