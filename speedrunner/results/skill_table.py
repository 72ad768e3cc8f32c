"""Each skill's history: the sleeps that created or changed it, the number of calls, and their results."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from speedrunner.library.definition import Definition
from speedrunner.library.library import Library
from speedrunner.store.json_records import leave_out
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import CallNode, Skill, Trajectory, is_failure
from speedrunner.store.run_data import RunData

START = "from the start"
RENAMED = "renamed from "
NO_BATCH = "no episodes"


class SkillVersion(msgspec.Struct):
    """One version of a skill, in all finished episodes, held-out ones included.

    Attributes:
        sleep: the sleep that created this version; 0: the run started with it.
        change: the change by that sleep: `written`, `edited`, `renamed from NAME` and so on.
        until: the sleep that changed or removed it.
        removed: whether that sleep removed it.
        calls: calls by the actor.
        inner_calls: calls by other skills and by programs.
        errors: failed calls of both kinds; a call that the end of the episode stopped did not fail.
        actions: primitives that advanced the world, in the actor's calls.
        steps_saved: `actions` minus one for each call: further calls that the actor would have needed.
        episodes: number of episodes in which the actor called it.
        scored: number of these episodes that have a score.
        score: sum of these scores.
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
    episodes: int = 0
    scored: int = 0
    score: float = 0.0

    @property
    def steps_saved(self) -> int:
        """Return the number of LLM calls that it saved the actor."""
        return self.actions - self.calls

    @property
    def total(self) -> int:
        """Return the calls by the actor and by other code."""
        return self.calls + self.inner_calls


COUNTED = ("calls", "inner_calls", "errors", "actions", "episodes", "scored", "score")
"""Attributes of a version that add up."""


class Use(msgspec.Struct, frozen=True):
    """One episode.

    Attributes:
        turns: turns of the actor.
        saved: steps saved by each skill that the actor called.
        calls: calls of each skill, by the actor and by other code.
    """

    episode: str
    policy: int
    turns: int
    saved: dict[str, int]
    calls: dict[str, int]


@dataclass(frozen=True)
class SkillHistory:
    """A run's skills.

    Attributes:
        libraries: by version of the policy.
        versions: versions of all skills, in the order in which sleeps made them.
        uses: the training episodes, in order.
        tests: the held-out episodes, in the order in which they ended.
    """

    libraries: dict[int, Library]
    versions: list[SkillVersion]
    uses: list[Use]
    tests: list[Use]

    @cached_property
    def by_name(self) -> dict[str, list[SkillVersion]]:
        """Return the versions of each skill, the skills in the order of creation."""
        found: dict[str, list[SkillVersion]] = {}
        for each in self.versions:
            found.setdefault(each.name, []).append(each)
        return found

    def total(self, name: str) -> SkillVersion:
        """Return a skill's newest version with the counts and scores of all its versions."""
        own = self.by_name[name]
        sums = {field: sum(getattr(each, field) for each in own) for field in COUNTED}
        return msgspec.structs.replace(own[-1], **sums)


def skill_history(run: RunData, *, held_out: bool = True) -> SkillHistory:
    """Follow a run's skills through its policies and call trees.

    Args:
        held_out: whether calls in held-out episodes count.

    Raises:
        StorageError: the run cannot be read, or a policy's library is damaged; if the run was loaded with
            `skip_broken`, such a library is left out.
    """
    played_with = {row.policy for row in run.episodes if held_out or row.phase == "train"}
    stored = sorted(played_with.union(run.policies.versions()))
    libraries: dict[int, Library] = {}
    for version in stored:
        try:
            libraries[version] = Library(()).of(run.policies.load(version))
        except InvalidPolicy as error:
            leave_out(error, run.left_out)
            continue
    versions: list[SkillVersion] = []
    current: dict[int, dict[str, SkillVersion]] = {}
    before, there = Library(()), dict[str, SkillVersion]()
    for number, library in libraries.items():
        first = number == stored[0]
        for name in [name for name in there if name not in library.by_name]:
            gone = there.pop(name)
            gone.until, gone.removed = number, True
        vanished: dict[int, list[tuple[int, str]]] = {}
        for each in before.skills:
            if each.name not in library.by_name:
                length = len(before.named[each.name].source)
                vanished.setdefault(each.created, []).append((length, each.name))
        for lengths in vanished.values():
            lengths.sort()
        for name, skill in library.by_name.items():
            change = START if first else _change(skill, before, library, number, vanished)
            if change is not None:
                if name in there:
                    there[name].until = number
                there[name] = SkillVersion(name, number, change, skill.public)
                versions.append(there[name])
        before, current[number] = library, dict(there)
    if not versions:
        return SkillHistory(libraries, [], [], [])  # no skills, so no episode needs to be read
    uses = [_count_uses(played, current.get(played.policy, {})) for played in run.played("train")]
    held = run.played("test") if held_out else ()
    tests = [_count_uses(played, current.get(played.policy, {})) for played in held]
    return SkillHistory(libraries, versions, sorted(uses, key=lambda use: use.episode), tests)


def skill_events(run: RunData, history: SkillHistory) -> dict[str, list[str]]:
    """Return the changes of each skill, one line each, in order of creation."""
    found: dict[str, list[str]] = {}
    batches = _list_batches(run)
    for each in history.versions:
        when = each.change
        if each.change != START:
            when += f" in sleep {each.sleep}, after {batches.get(each.sleep - 1, NO_BATCH)}"
        found.setdefault(each.name, []).append(f"{when}: {_rate_use(each)}")
    for each in history.versions:
        if each.removed and each.until is not None:
            batch = batches.get(each.until - 1, NO_BATCH)
            found[each.name].append(f"removed in sleep {each.until}, after {batch}")
    return found


def _rate_use(skill: SkillVersion) -> str:
    if not skill.total:
        return "never called"
    parts = [f"called {skill.calls} times by the actor", f"{skill.inner_calls} by other code"]
    parts.append(f"{skill.errors} failed")
    if skill.calls:
        parts.append(f"{skill.actions / skill.calls:.1f} actions a call")
    if skill.scored:
        parts.append(f"score {skill.score / skill.scored:.3f} in {skill.scored} episodes")
    return ", ".join(parts)


def _list_batches(run: RunData) -> dict[int, str]:
    """Return the training episodes that each version of the policy played: `train/0010 to train/0019`."""
    keys: dict[int, list[str]] = {}
    for row in run.episodes:
        if row.phase == "train":
            keys.setdefault(row.policy, []).append(row.episode)
    return {policy: f"{min(own)} to {max(own)}" for policy, own in keys.items()}


def _change(
    skill: Skill,
    before: Library,
    after: Library,
    sleep: int,
    vanished: Mapping[int, Sequence[tuple[int, str]]],
) -> str | None:
    """Return the change of a skill by a sleep; `None` if it is unchanged.

    Args:
        vanished: lengths and names of the skills that the sleep removed or renamed, sorted, by the sleep that
            created them.
    """
    name, old = skill.name, before.by_name.get(skill.name)
    if old is None:
        same = vanished.get(skill.created, ()) if skill.created < sleep else ()
        if not same:
            return "written"
        # Choose the candidate with the most similar length, as a rename changes little else.
        length = len(after.named[name].source)
        place = bisect_left(same, (length, ""))
        nearest = min(same[max(place - 1, 0) : place + 1], key=lambda each: abs(each[0] - length))
        return f"{RENAMED}{nearest[1]}"
    own: tuple[Definition, ...] = before.named[name], after.named[name]
    if own[0] != own[1]:
        return "edited"
    if old.public != skill.public:
        return "made public" if skill.public else "made private"
    return "edited in shared code" if skill.edited == sleep != old.edited else None


def _count_uses(played: Trajectory, there: dict[str, SkillVersion]) -> Use:
    """Count an episode's calls for the skill versions of that time."""
    saved: dict[str, int] = {}
    calls: dict[str, int] = {}
    for turn in played.turns:
        if turn.executed is None:
            continue
        if skill := _skill(turn.executed, there):
            skill.calls += 1
            skill.actions += turn.executed.actions
            saved[skill.name] = saved.get(skill.name, 0) + turn.executed.actions - 1
            calls[skill.name] = calls.get(skill.name, 0) + 1
        for node in turn.executed.below():
            if skill := _skill(node, there):
                skill.inner_calls += 1
                calls[skill.name] = calls.get(skill.name, 0) + 1
    for name in saved:
        skill = there[name]
        skill.episodes += 1
        if played.outcome is not None:
            skill.scored += 1
            skill.score += played.outcome.score
    turns = sum(turn.role == "actor" for turn in played.turns)
    return Use(played.episode, played.policy, turns, saved, calls)


def _skill(node: CallNode, there: dict[str, SkillVersion]) -> SkillVersion | None:
    """Return the skill version of a call, if it is a skill's, and count its error."""
    skill = there.get(node.name) if node.kind == "skill" else None
    if skill is not None and is_failure(node.error):
        skill.errors += 1
    return skill
