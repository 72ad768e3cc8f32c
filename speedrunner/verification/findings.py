"""What a check of a run has found, for people and programs."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

SHOWN = 5
"""Differences of a check that are told; more are counted."""

CHARS = 60
"""Characters that are told of a value, from a little before it differs from the other one."""


OUT_OF_TIME = "the time was over (--minutes allows more)"
"""Why a check is late."""

Status = Literal["ok", "failed", "not checked"]


class Difference(msgspec.Struct, frozen=True):
    """Something in a run that cannot be.

    Attributes:
        where: a file, or an episode or sleep with the turn (from 1).
        what: what is wrong there.
    """

    where: str
    what: str


class Check(msgspec.Struct, frozen=True):
    """One check of a run.

    Attributes:
        summary: what was checked and counted; of one that was not made, why.
        differences: the first ones.
        found: how many there are in all.
        is_late: whether the time was over before the check ended.
    """

    name: str
    status: Status
    summary: str
    differences: list[Difference] = []
    found: int = 0
    is_late: bool = False

    def lines(self) -> list[str]:
        """As people read it: one line, and one for each difference that is told."""
        status = "FAILED" if self.status == "failed" else self.status
        rest = self.found - len(self.differences)
        return [
            f"{self.name:9} {status}: {self.summary}",
            *(f"          {each.where}: {each.what}" for each in self.differences),
            *([f"          and {rest} more"] if rest else []),
        ]


class Findings:
    """Collects what one check finds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._differences: list[Difference] = []
        self._found = 0
        self.left_out: Counter[str] = Counter()
        """What could not be checked, by the reason."""

    def differs(self, where: str, what: str) -> None:
        """Note a difference."""
        one = Difference(where, what)
        if one in self._differences:
            return  # told, as of another row
        self._found += 1
        if len(self._differences) < SHOWN:
            self._differences.append(one)

    def expect(self, where: str, what: str, recorded: object, found: object) -> None:
        """Note a difference where what was recorded is not what it should be."""
        if recorded != found:
            self.differs(where, f"{what}: {contrast(recorded, found)}")

    def check(self, summary: str, *, is_late: bool = False) -> Check:
        """The check as it ended; one that is late has not checked the rest."""
        why = "; ".join(f"{count} left out: {reason}" for reason, count in sorted(self.left_out.items()))
        told = f"{summary}; {why}" if why else summary
        if is_late:
            told += f"; the rest is not checked: {OUT_OF_TIME}"
        status: Status = "failed" if self._found else "not checked" if is_late else "ok"
        return Check(self._name, status, told, self._differences, self._found, is_late)


def contrast(recorded: object, found: object) -> str:
    """Two values that differ, each from a little before the place where it does."""
    one, other = (
        each if isinstance(each, str) else msgspec.json.encode(each).decode() for each in (recorded, found)
    )
    shorter = min(len(one), len(other))
    place = next((n for n in range(shorter) if one[n] != other[n]), shorter)
    start = max(place - CHARS // 3, 0)
    first, second = (
        f"{'...' * (start > 0)}{each[start : start + CHARS]}{'...' * (len(each) > start + CHARS)}"
        for each in (one, other)
    )
    return f"recorded is {first!r}, and it should be {second!r}"


def turn_of(episode: str, number: int) -> str:
    """How a turn, counted from 0, is named to people."""
    return f"{episode}, turn {number + 1}"
