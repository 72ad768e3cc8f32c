"""A run's library: over time, one version with its changes and source, and the calls of its skills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from markupsafe import Markup

from speedrunner.agents.reading import summarize_sleep
from speedrunner.library.library import Library
from speedrunner.library.text import diff_lines
from speedrunner.pages.edit_diffs import compare_definitions
from speedrunner.pages.shown_calls import highlight
from speedrunner.pages.tables import Column, html_table
from speedrunner.pages.view_parts import Context, NotFound, heading, link
from speedrunner.results.skill_table import (
    RENAMED,
    START,
    SkillHistory,
    SkillVersion,
    list_skills,
    skill_history,
)
from speedrunner.store.json_records import leave_out
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import CallNode
from speedrunner.store.run_data import RunData

LEVELS = 4
"""Shades for the number of calls."""

Calls = Counter[tuple[str, str]]
"""Number of calls by caller and called function; the caller of the actor's calls is empty."""


def version_page(run: RunData, version: int) -> Context:
    """Return one library: its functions, changes and calls. Raises `NotFound`."""
    there = run.policies.versions()
    if version not in there:
        raise NotFound(f"the run does not have library {version:04d} now")
    policy = run.policies.load(version)
    library = Library(()).of(policy)
    before = max((each for each in there if each < version), default=None)
    changes, notes = [], []
    if before is not None:
        try:
            earlier = run.policies.load(before)
            changes = compare_definitions(Library(()).of(earlier).named, library.named)
            if earlier.notes != policy.notes:
                lines = diff_lines(earlier.notes.split("\n"), policy.notes.split("\n"), ("", ""))
                notes = list(lines)[2:]  # without the names of files
        except InvalidPolicy as error:  # its changes are unknown; the library is shown
            leave_out(error, run.left_out)
            before = None
    calls = count_calls(run, version)
    totals: Counter[str] = Counter()
    for (_, called), count in calls.items():
        totals[called] += count
    return {
        **heading(run),
        "version": version,
        "versions": there,
        "sleeps": {each.sleep for each in run.sleeps},
        "skills": [
            (skill, highlight(library.named[skill.name].source), totals[skill.name])
            for skill in library.skills
        ],
        "public": len(library.public),
        "shared": highlight("\n".join(library.shared.values())) if library.shared else "",
        "notes": policy.notes,
        "changes": changes,
        "notes_changed": notes,
        "before": before,
        "calls": list_calls(library, calls),
        "called": sum(totals[skill.name] for skill in library.skills),
    }


def count_calls(run: RunData, version: int) -> Calls:
    """Return the calls in all finished episodes that were played with a library version; reads them."""
    found: Calls = Counter()

    def walk(caller: str, node: CallNode) -> None:
        if node.kind != "tool":
            found[caller, node.name] += 1
            caller = node.name
        for each in node.calls:
            walk(caller, each)

    for row in run.rows:
        played = run.find(row) if row.policy == version else None
        for turn in played.turns if played else ():
            if turn.executed is not None:
                walk("", turn.executed)
    return found


def list_calls(library: Library, calls: Mapping[tuple[str, str], int]) -> dict[str, list[tuple[str, int]]]:
    """Return what each skill calls, by its source or as recorded, and how often."""
    found: dict[str, dict[str, int]] = {
        skill.name: dict.fromkeys(library.calls(skill.name), 0) for skill in library.skills
    }
    for (caller, called), count in calls.items():
        if caller in found:
            found[caller][called] = count
    return {name: sorted(those.items(), key=lambda each: -each[1]) for name, those in found.items()}


def skills_page(run: RunData) -> Context:
    """Return all skills that a run ever had, those first that the actor called most often."""
    stored, rows = run.policies.versions(), []
    skills = list_skills(run, skill_history(run))
    for each in sorted(skills, key=lambda each: (-each.calls, -each.inner_calls)):
        end = each.removed
        having = [version for version in stored if version >= each.changed and (end is None or version < end)]
        address = f"library/{having[-1]:04d}.html#skill-{each.skill}" if having else ""
        rows.append(
            [
                link(address, each.skill) if address else each.skill,
                "actor" if each.public else "skills",
                *(each.calls, each.inner_calls, each.errors, each.score),
                each.actions if each.calls else None,
                each.steps_saved if each.calls else None,
                each.schema_tokens,
                each.changed,
                end,
            ]
        )
    columns = (
        *("skill", "visible to", "calls by the actor", "by other code", "failed"),
        *(Column("score with it", "{:.3f}".format, numbers=True), "actions", "LLM calls saved"),
        *(Column("schema tokens", "{:.0f}".format, numbers=True), "last edit: sleep"),
        Column("removed in sleep", numbers=True),
    )
    table = html_table(columns, rows, label="Skills", kind="sortable")
    return {**heading(run), "table": table, "count": len(rows)}


class Cell(msgspec.Struct, frozen=True):
    """A skill in one version of the library.

    Attributes:
        kind: `absent`, `kept`, `new`, `edited`, `renamed`, `deleted`, or `shown` (its visibility changed).
        name: the skill's name in this version; for `deleted`, before it.
        change: the change in words; empty for `absent` and `kept`.
        calls: calls in episodes that were played with this version, by the actor and by other code.
        score: mean score of these episodes; `None` without any.
        level: shade for the number of calls, from 0 (none) to `LEVELS`.
    """

    kind: str
    version: int
    name: str = ""
    change: str = ""
    calls: int = 0
    score: float | None = None
    level: int = 0


class Row(msgspec.Struct, frozen=True):
    """One skill under all of its names: its last name, the `earlier` ones, the last `version` that has it,
    and its `calls` in all finished episodes."""

    name: str
    earlier: list[str]
    public: bool
    version: int
    calls: int
    cells: list[Cell]


def history_page(run: RunData) -> Context:
    """Return the library over time: versions as columns, and as rows all skills that a run ever had; those
    first that the actor sees, then the most called."""
    history = skill_history(run)
    rows = sorted(list_rows(run, history), key=lambda row: (not row.calls, not row.public, -row.calls))
    return {
        **heading(run),
        "versions": sorted(history.libraries),
        "stored": set(run.policies.versions()),
        "sleeps": {each.sleep for each in run.sleeps},
        "timeline": _version_table(run, history, rows) if rows else Markup(),
        "rows": rows,
    }


def _version_table(run: RunData, history: SkillHistory, rows: Iterable[Row]) -> Markup:
    """Return one line for each version: what the sleep changed and says, and the episodes played with it."""
    changes: dict[int, Counter[str]] = {version: Counter() for version in history.libraries}
    for row in rows:
        for cell in row.cells:
            changes[cell.version][cell.kind] += 1
    played: dict[int, list[float | None]] = {}
    for each in run.rows:
        played.setdefault(each.policy, []).append(each.score)
    summaries = {
        record.sleep: summarize_sleep(msgspec.to_builtins(record))["summary"] for record in run.sleeps
    }
    stored, lines = run.policies.versions(), []
    for version, library in sorted(history.libraries.items()):
        scores = [score for score in played.get(version, []) if score is not None]
        lines.append(
            [
                link(f"library/{version:04d}.html", f"v{version}") if version in stored else f"v{version}",
                link(f"sleep/{version:04d}/1.html", f"Sleep {version}") if version in summaries else None,
                len(library.skills),
                *(changes[version][kind] or None for kind in ("new", "edited", "renamed", "deleted")),
                len(played.get(version, [])),
                sum(scores) / len(scores) if scores else None,
                summaries.get(version, ""),
            ]
        )
    columns: tuple[str | Column, ...] = (
        *("version", "sleep", "skills"),
        *(Column(kind, numbers=True) for kind in ("new", "edited", "renamed", "deleted")),
        "episodes with it",
        *(Column("score", "{:.3f}".format), "what the sleep says"),
    )
    return html_table(columns, lines, label="Versions", kind="timeline")


def list_rows(run: RunData, history: SkillHistory) -> list[Row]:
    """Return one row per skill, in the order in which they were first written."""
    scores = {row.episode: row.score for row in run.rows}
    usage: dict[tuple[int, str], tuple[int, list[float]]] = {}
    for use in history.uses:
        score = scores.get(use.episode)
        for name, calls in use.calls.items():
            before, known = usage.get((use.policy, name), (0, []))
            usage[use.policy, name] = before + calls, known + ([] if score is None else [score])
    most = max((calls for calls, _ in usage.values()), default=0)
    rows = []
    for changes in follow_skills(history):
        cells = [_cell(changes, version, usage, most) for version in sorted(history.libraries)]
        last = changes[-1]
        names = dict.fromkeys(each.name for each in changes)
        there = (each for each in history.libraries if last.until is None or each < last.until)
        rows.append(
            Row(
                name=last.name,
                earlier=[name for name in names if name != last.name],
                public=last.public,
                version=max(there, default=0),
                calls=sum(each.total for each in changes),
                cells=cells,
            )
        )
    return rows


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


def _cell(
    changes: Sequence[SkillVersion],
    version: int,
    usage: Mapping[tuple[int, str], tuple[int, list[float]]],
    most: int,
) -> Cell:
    """Return a skill in one version of the library."""
    there = [
        each for each in changes if each.sleep <= version and (each.until is None or version < each.until)
    ]
    if not there:
        gone = [each for each in changes if each.removed and each.until == version]
        if not gone:
            return Cell("absent", version)
        return Cell("deleted", version, name=gone[-1].name, change="deleted")
    now = there[-1]
    is_new = now.sleep == version
    calls, scores = usage.get((version, now.name), (0, []))
    return Cell(
        kind=_kind(now.change) if is_new else "kept",
        version=version,
        name=now.name,
        change=now.change if is_new else "",
        calls=calls,
        score=sum(scores) / len(scores) if scores else None,
        level=-(-LEVELS * calls.bit_length() // max(most.bit_length(), 1)),
    )


def _kind(change: str) -> str:
    """Return the kind of cell for a change as `SkillVersion` names it."""
    if change in ("written", START):
        return "new"
    if change.startswith(RENAMED):
        return "renamed"
    return "edited" if change.startswith("edited") else "shown"
