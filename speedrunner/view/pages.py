"""The content of each page of the viewer, for its template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

import envs
from envs import Primitive
from envs.env_registry import ENVIRONMENTS
from speedrunner.agents.reading import summarize_sleep
from speedrunner.config.names import condition_name
from speedrunner.config.schema import InvalidConfig
from speedrunner.library.library import Library
from speedrunner.library.text import compared_lines, diff_lines
from speedrunner.results.checkpoints import LIMITS, average_tests, frame_episodes
from speedrunner.results.plain_rows import list_rows
from speedrunner.results.skill_table import SkillHistory, skill_events
from speedrunner.runs.stored_setup import usable
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.process_notes import caveats
from speedrunner.store.records import Policy, SleepRecord, Termination, Turn
from speedrunner.store.run_data import RunData, load
from speedrunner.store.run_lock import owner_of
from speedrunner.store.stored_run import RunDirectoryError
from speedrunner.view.curve import curve
from speedrunner.view.graph import call_graph
from speedrunner.view.search import Query, search
from speedrunner.view.turns import highlight

TURNS = 100
"""Turns of an episode on one page."""

CHARS = 50_000
"""Characters of one text on a page."""

LINES = 10_000
"""Lines of a diff on a page."""

SOON_S, LATER_S = 4, 30
"""Seconds after which a page that can grow reloads: while a process plays the run, and otherwise."""

Context = dict[str, Any]


class NotFound(Exception):
    """The page does not exist."""


def heading(run: RunData) -> Context:
    """Return the heading of all pages of a run."""
    env = ""
    try:
        played = condition_name(run.settings)
        env = played.env
        named = f"{played.env}, {played.method}, {played.model}, seed {run.settings.run.seed}"
    except InvalidConfig as error:
        named = str(error)
    owner = owner_of(run.path / "lock")
    return {
        "name": run.path.name,
        "current": "",
        "env": env,
        "condition_name": named,
        "status": _status(run, owner),
        "growing": SOON_S if owner else LATER_S,
        "caveats": caveats(run.processes),
    }


def _status(run: RunData, owner: str | None) -> Context:
    """Return the text of a run's badge, its kind, and who plays it or why it is unknown."""
    if owner:
        return {"kind": "good", "text": "running", "note": f"played by {owner}"}
    try:
        end = run.training_end
        trained = sum(row.phase == "train" for row in run.rows)
        tested = Counter(row.checkpoint for row in run.rows if row.phase == "test")
        plan = run.settings.run
        is_finished = trained >= (plan.rollouts if end is None else end.rollouts) and all(
            tested[each] >= plan.test_episodes for each in run.checkpoints
        )
    except DAMAGED as error:
        return {"kind": "bad", "text": "damaged", "note": damage(run.path, error)}
    if is_finished:
        return {"kind": "plain", "text": "finished", "note": "all planned episodes are finished"}
    if not run.rows:
        return {"kind": "warn", "text": "not started", "note": "no finished episode, no process"}
    return {"kind": "warn", "text": "stopped", "note": "unfinished, no process"}


def runs_page(found: Mapping[str, Path]) -> Context:
    """Return the list of runs, by their names in addresses. A run that cannot be read shows its error."""
    shown = []
    for slug, path in found.items():
        try:
            run = load(path)
            points = list_rows(average_tests(frame_episodes(run.rows)))
            shown.append(
                {
                    "slug": slug,
                    **heading(run),
                    "path": str(path),
                    "episodes": len(run.rows),
                    "last": points[-1] if points else None,
                    "problem": "",
                }
            )
        except DAMAGED as error:
            shown.append({"slug": slug, "path": str(path), "problem": damage(path, error)})
    return {"runs": shown, "growing": min((each.get("growing", LATER_S) for each in shown), default=LATER_S)}


def run_page(run: RunData) -> Context:
    """Return a run's learning curve, sleeps and terminations."""
    points = list_rows(average_tests(frame_episodes(run.rows)))
    curves = {
        "score": [(each["checkpoint"], each["score"]) for each in points if each["score"] is not None],
        "output tokens per test episode": [
            (each["checkpoint"], each["output"]) for each in points if each["output"] is not None
        ],
    }
    return {
        **heading(run),
        "curves": {name: curve(name, values) for name, values in curves.items() if values},
        "points": points,
        "limits": LIMITS,
        "whole": run.settings.run.test_episodes,
        "sleeps": [summarize_sleep(msgspec.to_builtins(record)) for record in run.sleeps],
        "terminations": Counter((row.phase, row.termination.value) for row in run.rows),
        "versions": run.policies.versions(),
        "episodes": len(run.rows),
        "processes": run.processes,
    }


def episodes_page(run: RunData, given: Mapping[str, str]) -> Context:
    """Return all episodes, or those that match a search. Raises `InvalidQuery`."""
    query = Query.read(given)
    return {
        **heading(run),
        **({"growing": 0} if query.text or query.skill else {}),
        "hits": search(run, query),
        "given": {name: given.get(name, "") for name in Query.__struct_fields__},
        "terminations": [termination.value for termination in Termination],
        "episodes": len(run.rows),
        "page_of": lambda turn: (turn - 1) // TURNS + 1,
    }


def skills_page(run: RunData, history: SkillHistory) -> Context:
    """Return the history of each skill."""
    return {
        **heading(run),
        "growing": 0,
        "events": skill_events(run, history),
        "last": {each.name: each for each in history.versions},
        "called": {each.name for each in history.versions if each.calls},
    }


def library_page(run: RunData, version: int) -> Context:
    """Return one library: its functions, changes and calls."""
    there = run.policies.versions()
    if version not in there:
        raise NotFound(f"the run does not have library {version:04d} now")
    policy = run.policies.load(version)
    library = _library(run, policy)
    before = max((each for each in there if each < version), default=None)
    changed: list[str] = []
    if before is not None:
        earlier = run.policies.load(before)
        old = compared_lines(Library(()).of(earlier), earlier.notes)
        new = compared_lines(library, policy.notes)
        lines = diff_lines(old, new, (f"v{before:04d}", f"v{version:04d}"))
        changed = list(islice(lines, LINES))
        if next(lines, None) is not None:
            changed.append(f"[{LINES:,} lines shown: `speedrunner library diff` prints all]")
    return {
        **heading(run),
        "version": version,
        "versions": there,
        "skills": [(skill, highlight(library.named[skill.name].source)) for skill in library.skills],
        "shared": highlight("\n".join(library.shared.values())),
        "notes": policy.notes,
        "changed": changed,
        "before": before,
        "graph": call_graph(library),
    }


def _library(run: RunData, policy: Policy) -> Library:
    """Return a library with the primitives that its skills call, if they are known."""
    env = usable(run, ()).env
    try:
        return Library(_primitives(env.name, msgspec.json.encode(env.options))).of(policy)
    except InvalidPolicy:
        return Library(()).of(policy)


def cap_text(text: str) -> str:
    """Return a text cut to the maximum length on a page."""
    more = len(text) - CHARS
    return (
        text if more <= 0 else f"{text[:CHARS]}\n[{more:,} further characters: `speedrunner show` prints all]"
    )


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


def sleep_page(run: RunData, record: SleepRecord, page: int) -> Context:
    """Return a sleep's edits and some turns of its agents. Raises `NotFound`."""
    turns = [turn for agent in record.agents for turn in agent.turns]
    numbers = [each.sleep for each in run.sleeps]
    return {
        **heading(run),
        "growing": 0,
        "record": record,
        "summary": summarize_sleep(msgspec.to_builtins(record))["summary"],
        "last": max(numbers),
        **_part(turns, page),
    }


def _part(turns: Sequence[Turn], page: int) -> Context:
    pages = max(-(-len(turns) // TURNS), 1)
    if not 1 <= page <= pages:
        raise NotFound(f"it has {pages} pages")
    first = (page - 1) * TURNS
    return {
        "turns": list(enumerate(turns[first : first + TURNS], start=first + 1)),
        "count": len(turns),
        "page": page,
        "pages": pages,
    }


def find_sleep(run: RunData, number: int) -> SleepRecord:
    """Return a finished sleep. Raises `NotFound`."""
    try:
        return run.sleep(number)
    except RunDirectoryError as error:
        raise NotFound(str(error)) from error
