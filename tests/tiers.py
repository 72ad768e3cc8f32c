"""Which files a tier of tests does not import. Importing test modules is most of the cost of collecting."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

SLOW = "pytest.mark.slow"

_WHOLE = re.compile(r"^pytestmark = .*", re.MULTILINE)


@cache
def is_outside(tier: str, file: Path, starts_processes: bool) -> bool:
    """Return whether a file has no test of a tier, judged by its text.

    Args:
        tier: the option `-m` of `make check`, `make test` or `make test-slow`; others have all files.
        starts_processes: all tests of the file's folder have the marker `process`.
    """
    text = file.read_text(encoding="utf-8")
    if tier == "slow":
        return SLOW not in text
    marks = " ".join(_WHOLE.findall(text))
    if tier == "not slow":
        return SLOW in marks
    if tier == "not slow and not process":
        return starts_processes or SLOW in marks or "pytest.mark.process" in marks
    return False


@cache
def names_slow(file: Path) -> bool:
    """Return whether a file has the words by which `make test-slow` finds it."""
    return SLOW in file.read_text(encoding="utf-8")
