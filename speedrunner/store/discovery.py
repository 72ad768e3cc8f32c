"""Find the runs in a folder and read them, even if some are damaged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from serving.errors import ServingError
from speedrunner.config.schema import InvalidConfig
from speedrunner.store import files
from speedrunner.store.files import StorageError

Read = TypeVar("Read")

DAMAGED = (
    *(StorageError, InvalidConfig, ServingError),
    *(msgspec.MsgspecError, ValueError, LookupError, ArithmeticError, RecursionError),
)
"""Errors that reading a damaged run raises; the second line is for records that contradict each other."""


def runs_below(folder: Path) -> list[Path]:
    """Return the run directories in a folder and its subfolders, or the folder itself, sorted by name.

    Raises:
        StorageError: the folder does not exist or cannot be read.
    """
    with files.explain_errors(folder, "read"):
        os.scandir(folder).close()
    return [file.parent for file in find_files(folder, "config.yaml")]


def find_files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files with this name in a folder and its subfolders, without following links.

    A run's directory only counts for its configuration, since the run may come from someone else.
    """
    for place, folders, names in os.walk(folder):
        folders.sort()
        is_run = "config.yaml" in names
        if name in names and (not is_run or name == "config.yaml"):
            yield Path(place, name)
        if is_run:
            folders.clear()


def damage(path: Path, error: Exception) -> str:
    """Return one line that names a damaged run and says what is wrong with it."""
    cause = " ".join(str(error).split()) or type(error).__name__
    return cause if str(path) in cause else f"{path} cannot be read: {cause}"


def readable(paths: Iterable[Path], read: Callable[[Path], Read]) -> tuple[list[Read], list[str]]:
    """Read runs. Return the results, and one line for each damaged run.

    Raises:
        StorageError: all runs are damaged.
    """
    found: list[Read] = []
    problems: list[str] = []
    for path in paths:
        try:
            found.append(read(path))
        except DAMAGED as error:
            problems.append(damage(path, error))
    if problems and not found:
        raise StorageError("; ".join(problems))
    return found, problems
