"""Find the runs in a folder and read them, even if some are damaged."""

from __future__ import annotations

import os
import re
import stat
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec

from serving.errors import ServingError
from speedrunner.config.schema import InvalidConfig
from speedrunner.store import files
from speedrunner.store.files import StorageError

DAMAGED = (
    *(StorageError, InvalidConfig, ServingError),
    *(msgspec.MsgspecError, ValueError, LookupError, ArithmeticError, RecursionError),
    *(TypeError, AttributeError, AssertionError),
)
"""Errors that reading a damaged run raises; those of Python are for records that contradict each other."""


def runs_below(*folders: Path) -> list[Path]:
    """Return the run directories in folders and their subfolders, or the folders themselves.

    Each run is there once, however it was named; those of one folder are sorted by name.

    Raises `StorageError`: a folder does not exist or cannot be read.
    """
    runs: dict[Path, Path] = {}
    for folder in folders:
        with files.explain_errors(folder, "read"):
            os.scandir(folder).close()
        for file in find_files(folder, "config.yaml"):
            runs.setdefault(file.parent.resolve(), file.parent)
    return [*runs.values()]


def find_files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the regular files with this name in a folder and its subfolders, without following links.

    A run's directory only counts for its configuration, since the run may come from someone else.
    """
    for place, folders, names in os.walk(folder):
        folders.sort()
        is_run = "config.yaml" in names
        file, is_wanted = Path(place, name), name in names and (not is_run or name == "config.yaml")
        if is_wanted and stat.S_ISREG(file.lstat().st_mode):  # opening a pipe would wait for ever
            yield file
        if is_run:
            folders.clear()


def is_for_people(error: Exception) -> bool:
    """Return whether an error has a text for people, as all errors of our own classes have."""
    return any(
        base.__module__.startswith(("speedrunner.", "serving.", "envs.")) for base in type(error).__mro__
    )


def describe(error: Exception) -> str:
    """Return a reader's error as one line.

    Records that contradict each other can make any step of a reader fail. The line then names the place in
    the code, so that a bug can still be found.
    """
    text = " ".join(str(error).split())
    if is_for_people(error) or isinstance(error, msgspec.MsgspecError):
        return text or type(error).__name__
    text = re.sub(r"\bnp\.\w+\(([^()]*)\)", r"\1", text)  # numpy's numbers
    at = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"records of the run contradict each other ({type(error).__name__}: {text}, at"
        f" {Path(at.filename).name}:{at.lineno}); run `speedrunner verify` to find the record"
    )


def damage(path: Path, error: Exception) -> str:
    """Return one line that names a damaged run and says what is wrong with it."""
    cause = describe(error)
    return cause if str(path) in cause else f"{path} cannot be read: {cause}"
