"""A library over time: versions as columns, skills as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from speedrunner.pages.pages import Context, heading
from speedrunner.pages.sleep_page import read_summary
from speedrunner.results.skill_table import RENAMED, START, SkillHistory, SkillVersion
from speedrunner.store.run_data import RunData

CHANGES = ("new", "edited", "renamed", "deleted")
"""Kinds of cells that are counted for each version."""

LEVELS = 4
"""Shades for the number of calls."""


class Cell(msgspec.Struct, frozen=True):
    """A skill in one version of the library, or in several versions in a row that look alike.

    Attributes:
        kind: `absent`, `kept`, `new`, `edited`, `renamed`, `deleted`, or `shown` (its visibility changed).
        version: the first version.
        span: number of versions.
        name: the skill's name in this version; for `deleted`, before it.
        change: the change in words; empty for `absent` and `kept`.
        calls: calls in episodes that were played with this version, by the actor and by other code.
        score: mean score of these episodes; `None` without any.
        level: shade for the number of calls, from 0 (none) to `LEVELS`.
    """

    kind: str
    version: int
    span: int
    name: str = ""
    change: str = ""
    calls: int = 0
    score: float | None = None
    level: int = 0


class Row(msgspec.Struct, frozen=True):
    """One skill under all of its names.

    Attributes:
        name: its last name.
        earlier: its earlier names.
        version: the last version that has it.
        calls: calls in all finished episodes.
    """

    name: str
    earlier: list[str]
    public: bool
    version: int
    calls: int
    cells: list[Cell]


class VersionLine(msgspec.Struct, frozen=True):
    """One version of the library.

    Attributes:
        changes: number of skills by kind of cell.
        episodes: those that were played with it.
        score: their mean score; `None` without any.
        summary: what the sleep that made it says about its work.
    """

    version: int
    skills: int
    changes: Counter[str]
    episodes: int
    score: float | None
    summary: str


class Usage(msgspec.Struct):
    """Calls of a skill in the episodes that were played with one version.

    Attributes:
        calls: by the actor and by other code.
        scores: of the episodes with a call; those without a score are left out.
    """

    calls: int
    scores: list[float]


def history_page(run: RunData, history: SkillHistory) -> Context:
    """Return all skills that a run ever had; those first that the actor sees, then the most called."""
    versions = sorted(history.libraries)
    rows = list_rows(run, history)
    used = sorted((row for row in rows if row.calls), key=lambda row: (not row.public, -row.calls))
    timeline = list(_list_versions(run, history, rows))
    return {
        **heading(run),
        "versions": versions,
        "stored": set(run.policies.versions()),
        "sleeps": {each.sleep for each in run.sleeps},
        "timeline": timeline,
        "kinds": [kind for kind in CHANGES if any(each.changes[kind] for each in timeline)],
        "used": used,
        "unused": [row for row in rows if not row.calls],
    }


def _list_versions(run: RunData, history: SkillHistory, rows: Sequence[Row]) -> Iterator[VersionLine]:
    """Yield all versions, oldest first."""
    changes: dict[int, Counter[str]] = {version: Counter() for version in history.libraries}
    for row in rows:
        for cell in row.cells:
            changes[cell.version][cell.kind] += 1
    played: dict[int, list[float | None]] = {}
    for each in run.rows:
        played.setdefault(each.policy, []).append(each.score)
    summaries = {record.sleep: read_summary(record) for record in run.sleeps}
    for version, library in sorted(history.libraries.items()):
        own = played.get(version, [])
        scores = [score for score in own if score is not None]
        yield VersionLine(
            version=version,
            skills=len(library.skills),
            changes=changes[version],
            episodes=len(own),
            score=sum(scores) / len(scores) if scores else None,
            summary=summaries.get(version, ""),
        )


def follow_skills(history: SkillHistory) -> list[list[SkillVersion]]:
    """Return the versions of each skill under all of its names, oldest first. The skills are in the order in
    which they were first written."""
    found: list[list[SkillVersion]] = []
    current: dict[str, list[SkillVersion]] = {}
    for version in history.versions:
        before = version.change.removeprefix(RENAMED) if version.change.startswith(RENAMED) else version.name
        if before not in current:
            found.append(current.setdefault(before, []))
        current[version.name] = versions = current.pop(before)
        versions.append(version)
    return found


def list_rows(run: RunData, history: SkillHistory) -> list[Row]:
    """Return one row per skill, in the order in which they were first written."""
    versions = sorted(history.libraries)
    usage = count_usage(run, history)
    most = max((each.calls for each in usage.values()), default=0)
    return [_row(each, versions, usage, most) for each in follow_skills(history)]


def count_usage(run: RunData, history: SkillHistory) -> dict[tuple[int, str], Usage]:
    """Return the calls of each skill, by the version that an episode was played with and the name."""
    scores = {row.episode: row.score for row in run.rows}
    found: dict[tuple[int, str], Usage] = {}
    for use in history.uses:
        score = scores.get(use.episode)
        for name, calls in use.calls.items():
            usage = found.setdefault((use.policy, name), Usage(0, []))
            usage.calls += calls
            usage.scores += [] if score is None else [score]
    return found


def _row(
    changes: Sequence[SkillVersion], versions: Sequence[int], usage: dict[tuple[int, str], Usage], most: int
) -> Row:
    last = changes[-1]
    cells = [_cell(changes, version, usage, most) for version in versions]
    merged = []
    for _, those in groupby(enumerate(cells), key=lambda each: _likeness(*each)):
        group = [cell for _, cell in those]
        merged.append(msgspec.structs.replace(group[0], span=len(group)))
    names = dict.fromkeys(each.name for each in changes)
    return Row(
        name=last.name,
        earlier=[name for name in names if name != last.name],
        public=last.public,
        version=max(
            (version for version in versions if last.until is None or version < last.until), default=0
        ),
        calls=sum(each.total for each in changes),
        cells=merged,
    )


def _cell(
    changes: Sequence[SkillVersion], version: int, usage: dict[tuple[int, str], Usage], most: int
) -> Cell:
    """Return a skill in one version of the library."""
    there = [
        each for each in changes if each.sleep <= version and (each.until is None or version < each.until)
    ]
    if not there:
        gone = [each for each in changes if each.removed and each.until == version]
        return Cell("deleted", version, 1, gone[-1].name, "deleted") if gone else Cell("absent", version, 1)
    now = there[-1]
    used = usage.get((version, now.name), Usage(0, []))
    return Cell(
        kind=_kind(now.change) if now.sleep == version else "kept",
        version=version,
        span=1,
        name=now.name,
        change=now.change if now.sleep == version else "",
        calls=used.calls,
        score=sum(used.scores) / len(used.scores) if used.scores else None,
        level=-(-LEVELS * used.calls.bit_length() // max(most.bit_length(), 1)),
    )


def _kind(change: str) -> str:
    """Return the kind of cell for a change as `SkillVersion` names it."""
    if change in ("written", START):
        return "new"
    if change.startswith(RENAMED):
        return "renamed"
    return "edited" if change.startswith("edited") else "shown"


def _likeness(place: int, cell: Cell) -> tuple[int, str]:
    """Return a key that is equal for neighbors that can be merged: cells without a change and calls."""
    is_plain = cell.kind in ("absent", "kept") and not cell.calls
    return (-1, cell.kind) if is_plain else (place, cell.kind)
