"""The skills of a run: the sleeps that wrote and changed each, and its calls with what they saved."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import msgspec

from speedrunner.library.library import Library
from speedrunner.store.records import CallNode, Skill, Trajectory, is_failure
from speedrunner.store.run_data import RunData

START = "from the start"


class SkillVersion(msgspec.Struct):
    """One version of a skill, in all finished episodes, held-out ones included.

    Attributes:
        sleep: the sleep that created this version; 0: the run started with it.
        change: the change by that sleep: `written`, `edited`, `renamed to` and so on.
        until: the sleep that changed or removed it.
        removed: whether that sleep removed it.
        calls: calls by the actor.
        inner_calls: calls by other skills and by programs.
        errors: failed calls of both kinds; a call that the end of the episode stopped did not fail.
        actions: primitives that advanced the world, in the actor's calls.
        scored: number of scored episodes in which the actor called it.
        score: sum of their scores.
    """

    name: str
    sleep: int
    change: str
    public: bool
    until: int | None = None
    removed: bool = False
    calls: int = 0
    inner_calls: int = 0
    errors: int = 0
    actions: int = 0
    scored: int = 0
    score: float = 0.0

    @property
    def total(self) -> int:
        """Return the calls by the actor and by other code."""
        return self.calls + self.inner_calls


class Use(msgspec.Struct, frozen=True):
    """One episode: its key, the policy that played it, and the calls of each skill by any code."""

    episode: str
    policy: int
    calls: dict[str, int]


@dataclass(frozen=True)
class SkillHistory:
    """A run's skills.

    Attributes:
        libraries: by version of the policy.
        versions: versions of all skills, in the order in which sleeps made them.
        uses: the episodes.
    """

    libraries: dict[int, Library]
    versions: list[SkillVersion]
    uses: list[Use]


class SkillRow(msgspec.Struct, frozen=True, kw_only=True):
    """One skill over a whole run, with the calls of all its versions in all finished episodes.

    Attributes:
        created, changed: the sleeps that wrote it and changed it last; 0: the run started with it.
        removed: the sleep that deleted or renamed it.
        public: its last visibility.
        calls, inner_calls, errors, actions: see `SkillVersion`.
        steps_saved: `actions` minus `calls`: the LLM calls that it saved the actor.
        score: mean score of the episodes in which the actor called it; `None` without one.
    """

    skill: str
    created: int
    changed: int
    removed: int | None
    public: bool
    calls: int
    inner_calls: int
    errors: int
    actions: int
    steps_saved: int
    score: float | None


def skill_history(run: RunData) -> SkillHistory:
    """Follow a run's skills through its policies and call trees.

    Raises `StorageError`: the run cannot be read, or a policy's library is damaged.
    """
    stored = sorted({row.policy for row in run.episodes}.union(run.policies.versions()))
    libraries = {version: Library(()).of(run.policies.load(version)) for version in stored}
    versions: list[SkillVersion] = []
    current: dict[int, dict[str, SkillVersion]] = {}
    before, there = Library(()), dict[str, SkillVersion]()
    for number, library in libraries.items():
        for name in [name for name in there if name not in library.by_name]:
            gone = there.pop(name)
            gone.until, gone.removed = number, True
        for name, skill in library.by_name.items():
            change = START if number == stored[0] else _change(skill, before, library, number)
            if change is not None:
                if name in there:
                    there[name].until = number
                there[name] = SkillVersion(name, number, change, skill.public)
                versions.append(there[name])
        before, current[number] = library, dict(there)
    if not versions:
        return SkillHistory(libraries, [], [])  # no skills, so no episode needs to be read
    played = chain(run.played("train"), run.played("test"))
    uses = [_count_uses(each, current.get(each.policy, {})) for each in played]
    return SkillHistory(libraries, versions, uses)


def list_skills(history: SkillHistory) -> list[SkillRow]:
    """Return all skills that a run ever had, in the order in which they were created."""
    by_name: dict[str, list[SkillVersion]] = {}
    for version in history.versions:
        by_name.setdefault(version.name, []).append(version)
    rows = []
    for name, own in by_name.items():
        last = own[-1]
        calls, actions, scored = (
            sum(getattr(each, field) for each in own) for field in ("calls", "actions", "scored")
        )
        rows.append(
            SkillRow(
                skill=name,
                created=own[0].sleep,
                changed=last.sleep,
                removed=last.until if last.removed else None,
                public=last.public,
                calls=calls,
                inner_calls=sum(each.inner_calls for each in own),
                errors=sum(each.errors for each in own),
                actions=actions,
                steps_saved=actions - calls,
                score=sum(each.score for each in own) / scored if scored else None,
            )
        )
    return rows


def _change(skill: Skill, before: Library, after: Library, sleep: int) -> str | None:
    """Return the change of a skill by a sleep; `None` if it is unchanged."""
    name, old = skill.name, before.by_name.get(skill.name)
    if old is None:
        return "written" if skill.created == sleep else "renamed to"
    if before.named[name] != after.named[name]:
        return "edited"
    if old.public != skill.public:
        return "made public" if skill.public else "made private"
    return "edited in shared code" if skill.edited == sleep != old.edited else None


def _count_uses(played: Trajectory, there: dict[str, SkillVersion]) -> Use:
    """Count an episode's calls for the skill versions of that time."""
    called: dict[str, SkillVersion] = {}
    calls: dict[str, int] = {}
    for turn in played.turns:
        if turn.executed is None:
            continue
        if skill := _skill(turn.executed, there):
            skill.calls += 1
            skill.actions += turn.executed.actions
            called[skill.name] = skill
            calls[skill.name] = calls.get(skill.name, 0) + 1
        for node in turn.executed.below():
            if skill := _skill(node, there):
                skill.inner_calls += 1
                calls[skill.name] = calls.get(skill.name, 0) + 1
    for skill in called.values():
        if played.outcome is not None:
            skill.scored += 1
            skill.score += played.outcome.score
    return Use(played.episode, played.policy, calls)


def _skill(node: CallNode, there: dict[str, SkillVersion]) -> SkillVersion | None:
    """Return the skill version of a call, if it is a skill's, and count its error."""
    skill = there.get(node.name) if node.kind == "skill" else None
    if skill is not None and is_failure(node.error):
        skill.errors += 1
    return skill
