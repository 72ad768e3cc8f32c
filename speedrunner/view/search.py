"""Which episodes of a run somebody asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite, nan
from typing import get_args

import msgspec

from speedrunner.store.data import RunData
from speedrunner.store.records import EpisodeRow, Phase


class InvalidQuery(Exception):
    """What was asked for is no number where one is due."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode has to have; what is empty does not matter.

    Attributes:
        least, most: of its score; one without a score has none of them.
        skill: that the actor called, by its exact name.
        text: that stands in it, letter by letter: told, thought, written, in calls or in what they returned;
            also in the names that records have for these.
    """

    phase: str = ""
    ending: str = ""
    least: float | None = None
    most: float | None = None
    skill: str = ""
    text: str = ""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Query:
        """From a form's fields. Raises `InvalidQuery`."""

        def number(name: str) -> float | None:
            text = given.get(name, "").strip()
            try:
                found = float(text) if text else None
            except ValueError:
                found = nan
            if found is not None and not isfinite(found):
                raise InvalidQuery(f"{name}={text!r} is no number: scores lie between 0 and 1")
            return found

        return cls(
            phase=given.get("phase", "").strip(),
            ending=given.get("ending", "").strip(),
            least=number("least"),
            most=number("most"),
            skill=given.get("skill", "").strip(),
            text=given.get("text", ""),
        )

    def allows(self, row: EpisodeRow) -> bool:
        """Whether a row has what it can show."""
        if self.least is not None or self.most is not None:
            low, high = self.least, self.most
            if (
                row.score is None
                or (low is not None and row.score < low)
                or (high is not None and row.score > high)
            ):
                return False
        return self.phase in ("", row.phase) and self.ending in ("", row.ending.value)


class Hit(msgspec.Struct, frozen=True):
    """An episode that was found.

    Attributes:
        turn: the first one, from 1, in which what was looked for stands; `None` where that is not known.
    """

    row: EpisodeRow
    turn: int | None = None


def search(run: RunData, query: Query) -> list[Hit]:
    """The episodes of a run that a query finds, in their order. Raises `StorageError`.

    Files are gone through byte by byte and not decoded, as there may be a gigabyte of them.
    """
    rows = {row.episode: row for row in sorted(run.rows, key=lambda row: row.episode) if query.allows(row)}
    if not query.text and not query.skill:
        return [Hit(row) for row in rows.values()]
    turns: dict[str, int | None] = {}
    for key, line in _lines(run):
        turns.pop(key, None)  # of several attempts the last one counts
        if key in rows and (turn := _first(line, query)) is not None:
            turns[key] = turn
    return [Hit(row, turns[key]) for key, row in rows.items() if key in turns]


def _lines(run: RunData) -> Iterator[tuple[str, bytes]]:
    for phase in get_args(Phase):
        yield from run.lines(phase)


# Quotes within texts are escaped in JSON, so that no text can pose as one of these.
_TURN = b'{"messages":['


def _first(line: bytes, query: Query) -> int | None:
    """The turn by which all that is looked for has stood once."""
    wanted = []
    if query.skill:
        wanted.append(b'"executed":{"name":' + msgspec.json.encode(query.skill) + b',"kind":"skill"')
    if query.text:
        wanted.append(msgspec.json.encode(query.text)[1:-1])
    places = [line.find(each) for each in wanted]
    if min(places) < 0:
        return None
    return max(line.count(_TURN, 0, max(places)), 1)
