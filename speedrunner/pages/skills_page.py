"""The skills of a run: their calls, what these saved, and the sleeps that changed them."""

from __future__ import annotations

import msgspec

from speedrunner.pages.pages import Context, heading
from speedrunner.results.skill_table import SkillHistory, SkillRow, list_skills, skill_events
from speedrunner.store.run_data import RunData


class SkillLine(msgspec.Struct, frozen=True):
    """One name of a skill, with all its versions.

    Attributes:
        version: newest stored version of the library that has it; `None` if none is stored.
        events: its changes, one line each.
    """

    row: SkillRow
    version: int | None
    events: list[str]


def skills_page(run: RunData, history: SkillHistory) -> Context:
    """Return all skills, those first that the actor called most often."""
    events, stored = skill_events(history), run.policies.versions()
    lines = []
    for row in list_skills(run, history):
        end = row.removed
        having = (each for each in stored if each >= row.changed and (end is None or each < end))
        lines.append(SkillLine(row, max(having, default=None), events[row.skill]))
    lines.sort(key=lambda line: (-line.row.calls, -line.row.inner_calls))
    return {
        **heading(run),
        "used": [line for line in lines if line.row.calls + line.row.inner_calls],
        "unused": [line for line in lines if not line.row.calls + line.row.inner_calls],
    }
