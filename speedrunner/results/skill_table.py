"""The skills of a run: the sleeps that wrote and changed each, and its calls with what they saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import chain
from math import isnan, nan
from typing import TYPE_CHECKING

import msgspec

from envs import Outcome
from serving.usage import Integer
from speedrunner.library.library import Library
from speedrunner.store.records import EPISODE_ENDS, Skill
from speedrunner.store.run_data import EpisodeKey, RunData

if TYPE_CHECKING:
    import pandas

START = "from the start"

COUNTS = ("calls", "inner_calls", "errors", "actions")


@dataclass
class SkillVersion:
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
        carried: tokens of its schema times the actor's turns that had it in their prompt; NaN if unknown.
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
    carried: float = nan


@dataclass(frozen=True)
class SkillHistory:
    """A run's skills.

    Attributes:
        libraries: by version of the policy.
        versions: versions of all skills, in the order in which sleeps made them.
        calls: by episode, the calls of each skill by any code; empty if the run never had a skill.
        turn_tokens: mean tokens of an actor's turn, prompt and output; NaN if the run never had a skill.
    """

    libraries: dict[int, Library]
    versions: list[SkillVersion]
    calls: dict[str, dict[str, int]]
    turn_tokens: float = nan


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
        return SkillHistory(libraries, [], {})  # no skills, so no episode needs to be read
    calls, turns, tokens = dict[str, dict[str, int]](), Counter[int](), 0
    for played in chain(run.parts("train", _Played), run.parts("test", _Played)):
        calls[played.episode] = _count_calls(played, current.get(played.policy, {}))
        usages = [turn.usage for turn in played.turns if turn.role == "actor"]
        turns[played.policy] += len(usages)
        tokens += sum(usage.prompt + usage.completion for usage in usages)
    for policy, schemas in _measure_schemas(run, libraries).items():
        for name, size in schemas.items():
            one = current[policy][name]
            one.carried = (0 if isnan(one.carried) else one.carried) + size * turns[policy]
    return SkillHistory(libraries, versions, calls, tokens / max(turns.total(), 1))


def _measure_schemas(run: RunData, libraries: Mapping[int, Library]) -> dict[int, dict[str, float]]:
    """Return the tokens of each public skill's schema, by policy, as far as they are known.

    The tokens that all skills add to the recorded length of the prompt prefix are shared out by the length of
    their schemas as JSON.
    """
    prefix: dict[int, int] = {}
    for number, change in ((sleep.sleep, sleep.prefix) for sleep in run.sleeps):
        prefix |= {number - 1: change.before, number: change.after} if change else {}
    bare = next((length for policy, length in prefix.items() if not libraries[policy].public), None)
    found = {}
    for row in (row for row in run.tools if row.role == "actor" and row.policy in prefix):
        if bare is not None and row.policy is not None:
            public = {skill.name for skill in libraries[row.policy].public}
            sizes = {tool.name: len(msgspec.json.encode(tool)) for tool in row.tools if tool.name in public}
            token = (prefix[row.policy] - bare) / max(sum(sizes.values()), 1)
            found[row.policy] = {name: size * token for name, size in sizes.items()}
    return found


def frame_skills(history: SkillHistory) -> pandas.DataFrame:
    """Return one row per skill that a run ever had, in the order in which they were created.

    Columns: `skill`; `created` and `changed` (the sleeps that wrote it and changed it last; 0: the run
    started with it); `removed` (the sleep that deleted or renamed it); `public` (its last visibility);
    `COUNTS` (see `SkillVersion`) of all its versions; `steps_saved` (`actions` minus `calls`: the LLM calls
    that it saved the actor); `carried_tokens` (of its schema, in all prompts that had it) and `saved_tokens`
    (`steps_saved` times the mean tokens of an actor's turn); `score` (mean score of the episodes in which the
    actor called it; missing without one).
    """
    import pandas

    versions = pandas.DataFrame(history.versions, columns=[each.name for each in fields(SkillVersion)])
    by_skill = versions.groupby("name", sort=False)
    sums = by_skill[[*COUNTS, "scored", "score"]].sum()
    saved = sums["actions"] - sums["calls"]
    last = versions.drop_duplicates("name", keep="last").set_index("name")
    columns = {
        "created": by_skill["sleep"].first(),
        "changed": last["sleep"],
        "removed": last["until"].where(last["removed"]).astype("Int64"),
        "public": last["public"],
        **sums[[*COUNTS]],
        "steps_saved": saved,
        "carried_tokens": by_skill["carried"].sum(min_count=1),
        "saved_tokens": saved * history.turn_tokens,
        "score": sums["score"] / sums["scored"],
    }
    return pandas.DataFrame(columns, index=sums.index).rename_axis("skill").reset_index()


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


class _Primitive(msgspec.Struct, gc=False, tag_field="kind", tag="primitive"):
    """A call of a primitive, which calls nothing."""


class _Tool(msgspec.Struct, gc=False, tag_field="kind", tag="tool"):
    calls: list[_Primitive | _Tool | _Skill] = []


class _Skill(msgspec.Struct, gc=False, tag_field="kind", tag="skill"):
    name: str
    error: str | None = None
    actions: Integer = 0
    calls: list[_Primitive | _Tool | _Skill] = []


class _Usage(msgspec.Struct, gc=False):
    prompt: Integer
    completion: Integer


class _Turn(msgspec.Struct, gc=False):
    usage: _Usage
    role: str = "actor"
    executed: _Primitive | _Tool | _Skill | None = None


class _Played(EpisodeKey, gc=False, kw_only=True):
    """The fields of `Trajectory` that are counted: a fifth of the time to decode."""

    policy: Integer
    turns: list[_Turn]
    outcome: Outcome | None


def _count_calls(played: _Played, there: dict[str, SkillVersion]) -> dict[str, int]:
    """Count an episode's calls for the skill versions of that time; return those of each skill."""
    called: dict[str, SkillVersion] = {}
    calls: dict[str, int] = {}
    for turn in played.turns:
        waiting = [turn.executed]
        while waiting:
            call = waiting.pop()
            if call is None or isinstance(call, _Primitive):
                continue
            waiting += reversed(call.calls)
            if not isinstance(call, _Skill) or (version := there.get(call.name)) is None:
                continue
            calls[call.name] = calls.get(call.name, 0) + 1
            version.errors += call.error is not None and not call.error.startswith(EPISODE_ENDS)
            if call is turn.executed:
                version.calls += 1
                version.actions += call.actions
                called[call.name] = version
            else:
                version.inner_calls += 1
    for version in called.values():
        if played.outcome is not None:
            version.scored += 1
            version.score += played.outcome.score
    return calls
