"""Search the episodes of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, nan
from typing import get_args

import msgspec

from speedrunner.agents.reading import write_call
from speedrunner.pages.turns import describe_result
from speedrunner.store.files import StorageError
from speedrunner.store.json_records import as_part, as_record, leave_out
from speedrunner.store.records import EpisodeRow, Phase, Turn
from speedrunner.store.run_data import RunData


class InvalidQuery(Exception):
    """A field that needs a number contains something else."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions for an episode; empty ones are ignored.

    Attributes:
        least, most: limits of its score; an episode without a score matches neither.
        skill: a skill that the actor called, by its exact name.
        text: a text in one of its turns: in a message, thought, answer, call or result. Ignores case.
    """

    phase: str = ""
    termination: str = ""
    least: float | None = None
    most: float | None = None
    skill: str = ""
    text: str = ""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Query:
        """Parse a form's fields. Raises `InvalidQuery`."""

        def number(name: str) -> float | None:
            text = given.get(name, "").strip()
            try:
                found = float(text) if text else None
            except ValueError:
                found = nan
            if found is not None and not isfinite(found):
                raise InvalidQuery(f"{name}={text!r} must be a number between 0 and 1")
            return found

        return cls(
            phase=given.get("phase", "").strip(),
            termination=given.get("termination", "").strip(),
            least=number("least"),
            most=number("most"),
            skill=given.get("skill", "").strip(),
            text=given.get("text", ""),
        )

    def allows(self, row: EpisodeRow) -> bool:
        """Return whether a row meets the conditions that it can show."""
        if self.least is not None or self.most is not None:
            low, high = self.least, self.most
            if (
                row.score is None
                or (low is not None and row.score < low)
                or (high is not None and row.score > high)
            ):
                return False
        return self.phase in ("", row.phase) and self.termination in ("", row.termination.value)


class Hit(msgspec.Struct, frozen=True):
    """An episode that matches.

    Attributes:
        turn: the first matching turn, from 1; `None` if unknown.
    """

    row: EpisodeRow
    turn: int | None = None


def search(run: RunData, query: Query) -> list[Hit]:
    """Return the episodes of a run that match a query, in order. Raises `StorageError`.

    There may be a gigabyte of them, so lines are first filtered by their bytes, without decoding.
    """
    rows = {row.episode: row for row in sorted(run.rows, key=lambda row: row.episode) if query.allows(row)}
    if not query.text and not query.skill:
        return [Hit(row) for row in rows.values()]
    # As JSON encodes it. Case is ignored for ASCII only.
    wanted = [msgspec.json.encode(each)[1:-1].lower() for each in (query.text, query.skill) if each]
    turns: dict[str, int] = {}
    for phase in get_args(Phase):
        for key, line in run.lines(phase):
            turns.pop(key, None)  # only the last of several attempts counts
            if key in rows and all(each in line.lower() for each in wanted):
                try:
                    turn = _first(line, query, wanted, f"{run.path}, {key}")
                except StorageError as error:
                    leave_out(error, run.left_out)
                    continue
                if turn is not None:
                    turns[key] = turn
    return [Hit(row, turns[key]) for key, row in rows.items() if key in turns]


class _RawTurns(msgspec.Struct):
    """A trajectory with turns that are not decoded."""

    turns: list[msgspec.Raw]


def _first(line: bytes, query: Query, wanted: Sequence[bytes], where: str) -> int | None:
    """Return the first turn of an episode's line that matches everything, from 1.

    Args:
        wanted: what a matching turn contains, as lower-case JSON; other turns are not decoded.
    """
    text = query.text.lower()
    for number, raw in enumerate(as_part(line, _RawTurns, where).turns, start=1):
        content = bytes(raw)
        if not all(each in content.lower() for each in wanted):
            continue
        turn = as_record(content, Turn, f"{where}, turn {number},")
        called = turn.executed
        if query.skill and (called is None or (called.kind, called.name) != ("skill", query.skill)):
            continue
        if any(text in each.lower() for each in turn_texts(turn)):
            return number
    return None


def turn_texts(turn: Turn) -> Iterator[str]:
    """Yield all texts that a page shows of a turn."""
    yield from (message.content for message in turn.messages)
    yield from (turn.text, turn.reasoning, turn.error or "")
    for call in (turn.executed, *turn.executed.below()) if turn.executed else ():
        yield write_call(call.name, call.arguments)
        if call.error is not None or call.result is not None:
            yield describe_result(call)
        yield from (each for each in call.arguments.values() if isinstance(each, str))
