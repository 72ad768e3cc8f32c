"""What a check of a machine has found."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "failure"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: what.
        level: `failure`: a run would not begin, or not come to its end.
        text: what was found, on one line.
        remedy: what to do; empty where nothing is to be done.
    """

    name: str
    level: Level
    text: str
    remedy: str = ""

    def lines(self) -> list[str]:
        """As people read it: one line, and one for the remedy."""
        level = "FAILURE" if self.level == "failure" else self.level
        line = f"{level:7}  {self.name}: {' '.join(self.text.split())}"
        return [line, *([f"         -> {self.remedy}"] if self.remedy else [])]


def ok(name: str, text: str) -> Finding:
    """Nothing is wrong."""
    return Finding(name, "ok", text)


def warning(name: str, text: str, remedy: str) -> Finding:
    """Something may go wrong, or be slow."""
    return Finding(name, "warning", text, remedy)


def failure(name: str, text: str, remedy: str) -> Finding:
    """A run would fail."""
    return Finding(name, "failure", text, remedy)


class Examination(msgspec.Struct, frozen=True):
    """All that was found on a machine.

    Attributes:
        healthy: whether nothing failed.
        job: of Slurm, in which it was looked at.
    """

    healthy: bool
    host: str
    job: str | None
    findings: list[Finding]

    def summary(self) -> str:
        """One line for people."""
        counts = Counter(each.level for each in self.findings)
        told = [
            f"{counts['ok']} ok",
            _number(counts["warning"], "warning"),
            _number(counts["failure"], "failure"),
        ]
        return f"{self.host}: {', '.join(told)}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
