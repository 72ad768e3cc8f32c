"""Find and read the episodes of one batch or evaluation. Each file is indexed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from speedrunner.store import json_lines, json_records
from speedrunner.store.records import FORMAT, Trajectory


class EpisodeKey(msgspec.Struct):
    """The key of a finished episode; the rest of its trajectory is not decoded."""

    episode: str
    attempt: int
    format: int = FORMAT


class Entry(NamedTuple):
    """Position of one attempt at an episode in its file.

    Attributes:
        line: line number, from 1.
        start, size: position and length of the line in bytes, without its newline.
    """

    episode: str
    attempt: int
    line: int
    start: int
    size: int


class EpisodeFile:
    """The trajectories of one batch or evaluation. Every access may raise `StorageError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def attempts(self) -> list[Entry]:
        """Return every attempt that ended, in order; a torn tail is left out."""
        found: list[Entry] = []
        for number, start, line in json_lines.iterate_lines(self.path):
            key = json_records.as_record(line, EpisodeKey, f"{self.path}, line {number},")
            found.append(Entry(key.episode, key.attempt, number, start, len(line)))
        return found

    @cached_property
    def newest(self) -> list[Entry]:
        """Return the newest attempt at each episode."""
        last = {each.episode: each for each in self.attempts}
        return [each for each in self.attempts if last[each.episode] is each]

    def read(self, entries: Sequence[Entry]) -> Iterator[Trajectory]:
        """Yield the trajectories of attempts, one at a time in memory."""
        places = [(each.start, each.size) for each in entries]
        lines = json_lines.lines_at(self.path, places) if places else ()
        for each, line in zip(entries, lines, strict=True):
            yield json_records.as_record(line, Trajectory, f"{self.path}, line {each.line},")
