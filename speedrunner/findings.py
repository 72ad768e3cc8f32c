"""What a check has found: one record, one way to print it and one form in JSON, for all commands that check.

`speedrunner doctor`, `verify`, `check env` and `check method` print findings as they come, and exit with
status 1 if one of them failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "failed", "not checked"]

INDENT = " " * 13
"""Below the level of a finding."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was checked.

    Attributes:
        name: what was checked.
        level: `failed`: a run would not start or finish, its records are wrong, or a promise is broken.
        text: what was found; of a check that was not made, why.
        remedy: what to do; empty where nothing is to be done.
        details: the first single differences, each with its place.
        found: how many differences there are in all.
        is_late: whether the time was over before the check ended.
    """

    name: str
    level: Level
    text: str
    remedy: str = ""
    details: list[str] = []
    found: int = 0
    is_late: bool = False

    def lines(self) -> list[str]:
        """Return the finding as people read it: one line, then one for each detail and for the remedy."""
        level = "FAILED" if self.level == "failed" else self.level
        more = self.found - len(self.details)
        return [
            f"{level:11}  {self.name}: {' '.join(self.text.split())}",
            *(f"{INDENT}{each}" for each in self.details),
            *([f"{INDENT}and {more} more"] if more else []),
            *([f"{INDENT}-> {self.remedy}"] if self.remedy else []),
        ]


class Report(msgspec.Struct, frozen=True):
    """All that a command has found, which is its JSON form.

    Attributes:
        subject: the run, or the machine.
        passed: whether no finding failed or was late.
        notes: what else there is to know about the findings.
    """

    subject: str
    passed: bool
    findings: list[Finding]
    notes: list[str] = []

    def summary(self) -> str:
        """Return one line with the number of findings of each level."""
        counts = Counter(each.level for each in self.findings)
        shown = ", ".join(f"{count} {level}" for level, count in counts.items())
        return f"{self.subject}: {shown}"


def report(subject: str, findings: Sequence[Finding], notes: Sequence[str] = ()) -> Report:
    """Return the report on findings."""
    passed = not any(each.level == "failed" or each.is_late for each in findings)
    return Report(subject, passed, list(findings), list(notes))


def ok(name: str, text: str) -> Finding:
    """Return a finding that nothing is wrong."""
    return Finding(name, "ok", text)


def warning(name: str, text: str, remedy: str) -> Finding:
    """Return a finding that something may go wrong, or be slow."""
    return Finding(name, "warning", text, remedy)


def failure(name: str, text: str, remedy: str = "") -> Finding:
    """Return a finding that failed."""
    return Finding(name, "failed", text, remedy)
