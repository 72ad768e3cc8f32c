"""The skills of a run: their calls, and what episodes saved that called them."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

import msgspec

from speedrunner.results.inference import Estimate
from speedrunner.results.skill_savings import SkillSaving
from speedrunner.results.skill_table import SkillHistory, SkillVersion, skill_events
from speedrunner.store.run_data import RunData
from speedrunner.view.pages import Context, heading


class SkillLine(msgspec.Struct, frozen=True):
    """One name of a skill, with all its versions.

    Attributes:
        last: its newest version.
        version: newest stored version of the library that has it; `None` if none is stored.
        calls, inner_calls, errors, actions, steps_saved: sums over its versions; see `SkillVersion`.
        score: mean score of the episodes in which the actor called it; `None` without any.
        events: its changes, one line each.
    """

    last: SkillVersion
    version: int | None
    calls: int
    inner_calls: int
    errors: int
    actions: int
    steps_saved: int
    score: float | None
    saving: SkillSaving
    events: list[str]

    @property
    def total(self) -> int:
        """Return the calls by the actor and by other code."""
        return self.calls + self.inner_calls


def skills_page(run: RunData, history: SkillHistory, savings: Sequence[SkillSaving]) -> Context:
    """Return all skills, those first that the actor called most often.

    Args:
        savings: the result of `skill_savings`.
    """
    lines = _list_lines(run, history, savings)
    lines.sort(key=lambda line: (-line.calls, -line.inner_calls))
    return {
        **heading(run),
        "used": [line for line in lines if line.total],
        "unused": [line for line in lines if not line.total],
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
    for name, versions in history.by_name.items():
        last = versions[-1]
        scored = sum(each.scored for each in versions)
        having = (each for each in stored if each >= last.sleep and (last.until is None or each < last.until))
        lines.append(
            SkillLine(
                last=last,
                version=max(having, default=None),
                calls=sum(each.calls for each in versions),
                inner_calls=sum(each.inner_calls for each in versions),
                errors=sum(each.errors for each in versions),
                actions=sum(each.actions for each in versions),
                steps_saved=sum(each.steps_saved for each in versions),
                score=sum(each.score for each in versions) / scored if scored else None,
                saving=saved.get(name, SkillSaving(skill=name)),
                events=events.get(name, []),
            )
        )
    return lines
