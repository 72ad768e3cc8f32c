"""Describes errors of a user's code for users: one line, and the place in the code."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from traceback import extract_tb


def in_one_line(error: BaseException) -> str:
    """Return the class of an error and the first line of its text."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def place(error: BaseException, owner: type | None = None) -> str:
    """Return where an error was raised: `my_world.py, line 12, in call`; empty if no file is known.

    Args:
        owner: if the error passed through this class's file, the innermost line of that file is returned;
            otherwise the innermost of all.
    """
    frames = [each for each in extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    module = owner and sys.modules.get(owner.__module__)
    if module and (file := inspect.getsourcefile(module)):
        frames = [each for each in frames if each.filename == file] or frames
    return (
        f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}, in {frames[-1].name}" if frames else ""
    )
