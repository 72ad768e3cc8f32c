"""Runs that cannot be read: one line for each, and the others are gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from serving.errors import ServingError
from speedrunner.config.schema import InvalidConfig
from speedrunner.library.rules import InvalidSkill
from speedrunner.store.files import StorageError

Read = TypeVar("Read")

DAMAGED = (
    *(StorageError, InvalidConfig, InvalidSkill, ServingError),
    *(msgspec.MsgspecError, ValueError, LookupError, ArithmeticError, RecursionError),
)
"""What reading a damaged run raises: the last ones where its records do not fit each other."""


def damage(path: Path, error: Exception) -> str:
    """What is wrong with a run, in one line that names it."""
    cause = " ".join(str(error).split()) or type(error).__name__
    return cause if str(path) in cause else f"{path} cannot be read: {cause}"


def readable(paths: Iterable[Path], read: Callable[[Path], Read]) -> tuple[list[Read], list[str]]:
    """What `read` makes of each run, without the damaged ones, and what is wrong with these.

    Raises `StorageError` where all of them are damaged.
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
