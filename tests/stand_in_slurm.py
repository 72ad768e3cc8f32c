"""Slurm's commands as small programs with fixed answers, for tests without a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

PROGRAM = """#!{python} -IS
import json, sys
with open({calls!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], sys.stdin.read()]) + "\\n")
print({says!r}, end="")
print({refuses!r}, end="", file=sys.stderr)
sys.exit({status})
"""


def stand_in(folder: Path, name: str, says: str = "", refuses: str | None = None) -> Callable[[], list[str]]:
    """Put a program into `folder/bin`, which a test has on its PATH.

    Args:
        says: what it prints.
        refuses: what it complains of, and fails with.

    Returns:
        What tells with which arguments it was called last.
    """
    place = folder / "bin" / name
    place.parent.mkdir(exist_ok=True)
    calls = folder / f"{name}.calls"
    status = 0 if refuses is None else 1
    place.write_text(
        PROGRAM.format(
            python=sys.executable, calls=str(calls), says=says, refuses=refuses or "", status=status
        )
    )
    place.chmod(0o700)
    return lambda: last_call(folder, name)[0]


def last_call(folder: Path, name: str) -> tuple[list[str], str]:
    """Arguments and text that a stand-in was given last."""
    arguments, text = json.loads((folder / f"{name}.calls").read_text().splitlines()[-1])
    return arguments, text
