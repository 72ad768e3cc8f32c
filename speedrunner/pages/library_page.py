"""One version of a skill library: its changes, its call graph with usage, and its source."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import msgspec

import envs
from envs import Primitive
from envs.env_registry import ENVIRONMENTS
from speedrunner.library.library import Library
from speedrunner.library.text import diff_lines
from speedrunner.pages.edit_diffs import compare_definitions
from speedrunner.pages.pages import Context, NotFound, heading
from speedrunner.pages.turns import highlight
from speedrunner.runs.stored_setup import usable
from speedrunner.store.json_records import leave_out
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import CallNode, Policy, Trajectory
from speedrunner.store.run_data import RunData

OPEN_SKILLS = 40
"""Skills up to which sources, and differences are unfolded."""

HIGHLIGHTED_CHARS = 150_000
"""Characters of a library up to which its source is highlighted, which takes about 1 s."""

Calls = Counter[tuple[str, str]]
"""Number of calls by caller and called function; the caller of the actor's calls is empty."""


def library_page(run: RunData, version: int, calls: Calls) -> Context:
    """Return one library: its functions, changes and calls.

    Args:
        calls: the result of `count_calls`.

    Raises:
        NotFound: the run does not have this version.
    """
    there = run.policies.versions()
    if version not in there:
        raise NotFound(f"the run does not have library {version:04d} now")
    policy = run.policies.load(version)
    library = _library(run, policy)
    before = max((each for each in there if each < version), default=None)
    changes, notes = [], []
    try:
        earlier = None if before is None else run.policies.load(before)
        named = {} if earlier is None else Library(()).of(earlier).named
    except InvalidPolicy as error:  # its changes are unknown; the library is shown
        leave_out(error, run.left_out)
        earlier = before = None
    if earlier is not None:
        changes = compare_definitions(named, library.named)
        if earlier.notes != policy.notes:
            notes = list(diff_lines(earlier.notes.split("\n"), policy.notes.split("\n"), ("", "")))[2:]
    totals: Counter[str] = Counter()
    for (_, called), count in calls.items():
        totals[called] += count
    show = str if len(policy.module) > HIGHLIGHTED_CHARS else highlight
    sources = [
        (skill, show(library.named[skill.name].source), totals[skill.name]) for skill in library.skills
    ]
    return {
        **heading(run),
        "version": version,
        "versions": there,
        "sleeps": {each.sleep for each in run.sleeps},
        "skills": sources,
        "public": len(library.public),
        "shared": highlight("\n".join(library.shared.values())) if library.shared else "",
        "notes": policy.notes,
        "changes": changes,
        "notes_changed": notes,
        "before": before,
        "calls": _list_calls(library, calls),
        "called": sum(totals[skill.name] for skill in library.skills),
        "few": len(library.skills) <= OPEN_SKILLS,
    }


def _list_calls(library: Library, calls: Calls) -> dict[str, list[tuple[str, int]]]:
    """Return what each skill calls by its source, and how often each call ran."""
    return {
        skill.name: [(called, calls[skill.name, called]) for called in library.calls(skill.name)]
        for skill in library.skills
    }


def count_calls(run: RunData, version: int) -> Calls:
    """Return the calls in all finished episodes that were played with a library version; reads them."""
    found: Calls = Counter()
    for row in run.rows:
        played = run.find(row) if row.policy == version else None
        if played is not None:
            _count(played, found)
    return found


def _count(played: Trajectory, found: Calls) -> None:
    def walk(caller: str, node: CallNode) -> None:
        if node.kind != "tool":
            found[caller, node.name] += 1
            caller = node.name
        for each in node.calls:
            walk(caller, each)

    for turn in played.turns:
        if turn.executed is not None:
            walk("", turn.executed)


def _library(run: RunData, policy: Policy) -> Library:
    """Return a library with the primitives that its skills call, if they are known."""
    env = usable(run, ()).env
    try:
        return Library(_primitives(env.name, msgspec.json.encode(env.options))).of(policy)
    except InvalidPolicy:
        return Library(()).of(policy)


@lru_cache(maxsize=8)
def _primitives(name: str, options: bytes) -> tuple[Primitive, ...]:
    """Return the primitives of a bundled environment. A foreign one is code, which viewing a run must not
    execute."""
    if name not in ENVIRONMENTS:
        return ()
    try:
        env = envs.make(name, **msgspec.json.decode(options))
    except (envs.InvalidOption, envs.EnvironmentFault):
        return ()
    env.close()
    return env.primitives
