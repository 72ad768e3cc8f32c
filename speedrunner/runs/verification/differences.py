"""Differences found by a check of a run."""

from __future__ import annotations

from collections import Counter

import msgspec

from speedrunner.plain.findings import Finding, Level

SHOWN = 5
"""Maximum number of differences shown per check; further ones are counted."""

CHARS = 60
"""Characters shown of a value, starting shortly before the first difference."""


class Differences:
    """Collects the differences found by one check."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: list[str] = []
        self._found = 0
        self.left_out: Counter[str] = Counter()
        """Unchecked items, by reason."""

    def differs(self, where: str, what: str) -> None:
        """Record a difference.

        Args:
            where: a file, or an episode or sleep with the turn (from 1).
        """
        one = f"{where}: {what}"
        if one in self._first:
            return  # already recorded for another row
        self._found += 1
        if len(self._first) < SHOWN:
            self._first.append(one)

    def expect(self, where: str, what: str, recorded: object, found: object) -> None:
        """Record a difference if a recorded value is not the expected one."""
        if recorded != found:
            self.differs(where, f"{what}: {contrast(recorded, found)}")

    def finding(self, summary: str) -> Finding:
        """Return the finding of the check, with what was checked and counted."""
        why = "; ".join(f"{count} left out: {reason}" for reason, count in sorted(self.left_out.items()))
        text = f"{summary}; {why}" if why else summary
        level: Level = "failed" if self._found else "ok"
        return Finding(self._name, level, text, details=self._first, found=self._found)


def contrast(recorded: object, found: object) -> str:
    """Return two different values, each from shortly before the first difference."""
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
    """Return the name of a turn for people; `number` counts from 0."""
    return f"{episode}, turn {number + 1}"
