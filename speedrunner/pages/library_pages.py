"""A run's library: over time, one version with its changes and source, and the calls of its skills."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

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
    list_skills,
    skill_history,
)
from speedrunner.store.records import CallNode
from speedrunner.store.run_data import RunData

CHANGES = ("new", "edited", "deleted", "other")
"""Kinds of changes of skills, which are columns of the history."""

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
        earlier = run.policies.load(before)
        changes = compare_definitions(Library(()).of(earlier).named, library.named)
        if earlier.notes != policy.notes:
            lines = diff_lines(earlier.notes.split("\n"), policy.notes.split("\n"), ("", ""))
            notes = list(lines)[2:]  # without the names of files
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
    skills = list_skills(skill_history(run))
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
                each.changed,
                end,
            ]
        )
    columns = (
        *("skill", "visible to", "calls by the actor", "by other code", "failed"),
        *(Column("score with it", "{:.3f}".format, numbers=True), "actions", "LLM calls saved"),
        *("last edit: sleep", Column("removed in sleep", numbers=True)),
    )
    table = html_table(columns, rows, label="Skills", kind="sortable")
    return {**heading(run), "table": table, "count": len(rows)}


def history_page(run: RunData) -> Context:
    """Return the library over time: one line for each version."""
    history = skill_history(run)
    return {
        **heading(run),
        "versions": sorted(history.libraries),
        "stored": set(run.policies.versions()),
        "timeline": _version_table(run, history) if history.versions else Markup(),
    }


def _version_table(run: RunData, history: SkillHistory) -> Markup:
    """Return one line for each version: what the sleep changed and says, and the episodes played with it."""
    stored, lines = set(run.policies.versions()), []
    changes = list_library_changes(history, stored)
    played: dict[int, list[float | None]] = {}
    for each in run.rows:
        played.setdefault(each.policy, []).append(each.score)
    summaries = {
        record.sleep: summarize_sleep(msgspec.to_builtins(record))["summary"] for record in run.sleeps
    }
    for version, library in sorted(history.libraries.items()):
        scores = [score for score in played.get(version, []) if score is not None]
        lines.append(
            [
                link(f"library/{version:04d}.html", f"v{version}") if version in stored else f"v{version}",
                link(f"sleep/{version:04d}/1.html", f"Sleep {version}") if version in summaries else None,
                len(library.skills),
                *(Markup(", ").join(changes[version, kind]) or None for kind in CHANGES),
                len(played.get(version, [])),
                sum(scores) / len(scores) if scores else None,
                summaries.get(version, ""),
            ]
        )
    columns: tuple[str | Column, ...] = (
        *("version", "sleep", "skills", *CHANGES, "episodes with it"),
        *(Column("score", "{:.3f}".format), "what the sleep says"),
    )
    return html_table(columns, lines, label="Versions", kind="timeline")


def list_library_changes(
    history: SkillHistory, stored: Collection[int]
) -> defaultdict[tuple[int, str], list[Markup | str]]:
    """Return the names of changed skills by version and column of `CHANGES`. If the version is stored, each
    name is a link to the difference."""
    found: defaultdict[tuple[int, str], list[Markup | str]] = defaultdict(list)

    def add(version: int, kind: str, text: str, anchor: str) -> None:
        address = f"library/{version:04d}.html#{anchor}"
        found[version, kind].append(link(address, text) if version in stored else text)

    for each in history.versions:
        match each.change:
            case "edited in shared code":
                add(each.sleep, "edited", each.name, "changes")
            case "edited":
                add(each.sleep, "edited", each.name, f"change-{each.name}")
            case "written":
                add(each.sleep, "new", each.name, f"change-{each.name}")
            case change if change == START:
                add(each.sleep, "new", each.name, f"skill-{each.name}")
            case change:  # renamed, or its visibility changed
                add(each.sleep, "other", f"{each.name} ({change})", f"skill-{each.name}")
    changes = {(each.sleep, each.change) for each in history.versions}
    for each in history.versions:
        is_deleted = each.removed and (each.until, f"{RENAMED}{each.name}") not in changes
        if is_deleted and each.until is not None:
            add(each.until, "deleted", each.name, f"change-{each.name}")
    return found
