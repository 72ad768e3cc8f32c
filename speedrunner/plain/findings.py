"""Findings of a check: one record with one text and one JSON form, for all commands that check.

`speedrunner doctor` and `verify` print findings at once, and exit with status 1
if one of them failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "failed"]

INDENT = " " * 13
"""Indentation below the level of a finding."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check.

    Attributes:
        name: the checked item.
        level: `failed`: a run would not start or finish, its records are wrong, or a promise is broken.
        text: the result.
        remedy: what to do; empty if nothing needs to be done.
        details: the first differences, each with its place.
        found: total number of differences.
    """

    name: str
    level: Level
    text: str
    remedy: str = ""
    details: list[str] = []
    found: int = 0

    def lines(self) -> list[str]:
        """Return the finding as text: one line, then one for each detail and for the remedy."""
        level = "FAILED" if self.level == "failed" else self.level
        more = self.found - len(self.details)
        return [
            f"{level:11}  {self.name}: {' '.join(self.text.split())}",
            *(f"{INDENT}{detail}" for detail in self.details),
            *([f"{INDENT}and {more} more"] if more else []),
            *([f"{INDENT}-> {self.remedy}"] if self.remedy else []),
        ]


class Report(msgspec.Struct, frozen=True):
    """All findings of a command, in its JSON form.

    Attributes:
        subject: the run, or the machine.
        passed: whether no finding failed.
        notes: further information about the findings.
    """

    subject: str
    passed: bool
    findings: list[Finding]
    notes: list[str] = []

    def summary(self) -> str:
        """Return one line with the number of findings of each level."""
        counts = Counter(finding.level for finding in self.findings)
        shown = ", ".join(f"{count} {level}" for level, count in counts.items())
        return f"{self.subject}: {shown}"


def report(subject: str, findings: Sequence[Finding], notes: Sequence[str] = ()) -> Report:
    """Return the report on findings."""
    passed = not any(finding.level == "failed" for finding in findings)
    return Report(subject, passed, list(findings), list(notes))


def ok(name: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(name, "ok", text)


def warning(name: str, text: str, remedy: str) -> Finding:
    """Return a finding about something that may go wrong, or be slow."""
    return Finding(name, "warning", text, remedy)


def failure(name: str, text: str, remedy: str = "") -> Finding:
    """Return a failed finding."""
    return Finding(name, "failed", text, remedy)
