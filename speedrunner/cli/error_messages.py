"""Report a command's error in one line."""

from __future__ import annotations

from collections.abc import Sequence

from speedrunner.store.discovery import DAMAGED, describe, is_for_people

READERS = ("show", "compare", "cost", "report", "view", "status", "export", "library")
"""Commands that only read runs, possibly of someone else."""


def explain(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return the line for a command's error; `None` for a bug, which shows its traceback."""
    from speedrunner.agents.loop import ToolError
    from speedrunner.library.rules import InvalidSkill

    text = str(error)
    if isinstance(error, (InvalidSkill, ToolError)):  # texts for a model, which a method has not caught
        return None
    if isinstance(error, ModuleNotFoundError):
        text += ": install it, or build the environment again with `make venv`"
    elif not is_for_people(error):
        if next(iter(arguments), "") not in READERS or not isinstance(error, DAMAGED):
            return None
        text = describe(error)
    return f"error: {'; '.join(filter(None, map(str.strip, text.splitlines())))}"
