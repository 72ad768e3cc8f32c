"""A version of a run's library, the calls of its skills, and a sleep that edited it."""

from __future__ import annotations

import msgspec

from speedrunner.agents.reading import summarize_sleep
from speedrunner.library.library import Library
from speedrunner.pages.html_parts import Context, NotFound, heading, html_table, link, page_part
from speedrunner.pages.shown_code import compare_libraries, compare_texts, highlight
from speedrunner.results.skill_table import frame_skills, skill_history
from speedrunner.results.writing import list_rows
from speedrunner.store.records import Message, SleepRecord, Turn
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError


def version_page(run: RunData, version: int) -> Context:
    """Return one library: its functions, changes and calls. Raises `NotFound`."""
    there = run.policies.versions()
    if version not in there:
        raise NotFound(f"the run does not have library {version:04d} now")
    policy = run.policies.load(version)
    library = Library(()).of(policy)
    before = max((stored for stored in there if stored < version), default=None)
    changes, notes = [], []
    if before is not None:
        earlier = run.policies.load(before)
        changes = compare_libraries(Library(()).of(earlier), library)
        if earlier.notes != policy.notes:
            notes = [compare_texts("Notes for the actor", earlier.notes, policy.notes)]
    return {
        **heading(run),
        "version": version,
        "versions": there,
        "sleeps": {record.sleep for record in run.sleeps},
        "skills": [(skill, highlight(library.named[skill.name].source)) for skill in library.skills],
        "public": len(library.public),
        "shared": highlight("\n".join(library.shared.values())) if library.shared else "",
        "notes": policy.notes,
        "changes": changes,
        "notes_changed": notes,
        "before": before,
    }


def skills_page(run: RunData) -> Context:
    """Return all skills that a run ever had, those first that the actor called most often."""
    history, rows = skill_history(run), []
    skills = list_rows(frame_skills(history))
    for skill in sorted(skills, key=lambda skill: (-skill["calls"], -skill["inner_calls"])):
        name, end = skill["skill"], skill["removed"]
        last = max(version for version in history.libraries if end is None or version < end)
        rows.append(
            [
                link(f"library/{last:04d}.html#skill-{name}", name),
                "actor" if skill["public"] else "skills",
                *(skill["calls"], skill["inner_calls"], skill["errors"], skill["score"]),
                skill["actions"] if skill["calls"] else None,
                skill["steps_saved"] if skill["calls"] else None,
                skill["saved_tokens"] if skill["calls"] else None,
                skill["carried_tokens"],
                skill["changed"],
                end,
            ]
        )
    columns = (
        *("skill", "visible to", "calls by the actor", "by other code", "failed", "score with it", "actions"),
        *("LLM calls saved", "tokens saved", "tokens carried", "last edit: sleep", "removed in sleep"),
    )
    table = html_table(columns, rows, label="Skills", kind="sortable")
    return {**heading(run), "table": table, "count": len(rows), "versions": run.policies.versions()}


def sleep_page(run: RunData, number: int, page: int) -> Context:
    """Return a sleep's summary, edits and some of its turns. Raises `NotFound`."""
    try:
        record = run.sleep(number)
    except RunDirectoryError as error:
        raise NotFound(str(error)) from error
    return {
        **heading(run),
        "record": record,
        "summary": str(summarize_sleep(msgspec.to_builtins(record))["summary"]),
        "sleeps": {sleep.sleep for sleep in run.sleeps},
        "numbers": _list_numbers(record),
        "versions": run.policies.versions(),
        **page_part(list_turns(record), page),
    }


def _list_numbers(record: SleepRecord) -> list[tuple[str, str, str]]:
    """Return name, value and note of a sleep's headline numbers."""
    roles = ", ".join(dict.fromkeys(agent.role for agent in record.agents))
    usage, prefix = record.usage, record.prefix
    numbers = [
        ("Edits accepted", f"{record.accepted}", f"{record.refused} refused"),
        ("LLM calls", f"{len(record.turns)}", roles or "no agent"),
        ("Output tokens", f"{usage.completion:,}", f"{usage.prompt:,} prompt tokens"),
        ("Seconds", f"{record.seconds:.1f}", f"after {record.rollouts} new rollouts"),
    ]
    if prefix:
        cached = f"; {prefix.kept:,} stay cached" if prefix.kept is not None else ""
        kept = f"tokens; before {prefix.before:,}; the first {prefix.common:,} are unchanged{cached}"
        numbers.append(("Shared prompt prefix", f"{prefix.after:,}", kept))
    return numbers


def list_turns(record: SleepRecord) -> list[tuple[str, list[Message], Turn]]:
    """Return the turns of a sleep. Before each turn: the agent's role, if it is the agent's first turn, and
    the messages that begin a conversation; replies to calls are their results."""
    turns: list[tuple[str, list[Message], Turn]] = []
    for agent in record.agents:
        conversations: set[int] = set()
        for place, turn in enumerate(agent.turns):
            prompt = [] if turn.conversation in conversations else turn.messages
            conversations.add(turn.conversation)
            turns.append(("" if place else agent.role, prompt, turn))
    return turns
