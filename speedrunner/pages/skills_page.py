"""The skills of a run: their calls, and what episodes saved that called them."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

import msgspec

from speedrunner.pages.pages import Context, heading
from speedrunner.results.inference import Estimate
from speedrunner.results.skill_savings import SkillSaving
from speedrunner.results.skill_table import SkillHistory, SkillVersion, skill_events
from speedrunner.store.run_data import RunData


class SkillLine(msgspec.Struct, frozen=True):
    """One name of a skill, with all its versions.

    Attributes:
        last: its newest version, with the counts of all versions.
        version: newest stored version of the library that has it; `None` if none is stored.
        score: mean score of the episodes in which the actor called it; `None` without any.
        events: its changes, one line each.
    """

    last: SkillVersion
    version: int | None
    score: float | None
    saving: SkillSaving
    events: list[str]


def skills_page(run: RunData, history: SkillHistory, savings: Sequence[SkillSaving]) -> Context:
    """Return all skills, those first that the actor called most often.

    Args:
        savings: the result of `skill_savings`.
    """
    lines = _list_lines(run, history, savings)
    lines.sort(key=lambda line: (-line.last.calls, -line.last.inner_calls))
    return {
        **heading(run),
        "used": [line for line in lines if line.last.total],
        "unused": [line for line in lines if not line.last.total],
        "usd_form": usd_form,
    }


def usd_form(estimate: Estimate | None) -> str:
    """Return the format of an amount of USD and its interval: two significant digits of the mean, or two
    decimals if it is 0 up to rounding errors."""
    size = abs(estimate.mean) if estimate is not None else 0.0
    digits = 1 - floor(log10(size)) if 1e-9 < size < 0.1 else 2
    return f"{{:,.{digits}f}}"


def _list_lines(run: RunData, history: SkillHistory, savings: Sequence[SkillSaving]) -> list[SkillLine]:
    saved = {each.skill: each for each in savings}
    events = skill_events(run, history)
    stored = run.policies.versions()
    lines = []
    for name in history.by_name:
        last = history.total(name)
        having = (each for each in stored if each >= last.sleep and (last.until is None or each < last.until))
        lines.append(
            SkillLine(
                last=last,
                version=max(having, default=None),
                score=last.score / last.scored if last.scored else None,
                saving=saved.get(name, SkillSaving(skill=name)),
                events=events.get(name, []),
            )
        )
    return lines
