"""The initial content of the inducer's Python session. It runs in the sandbox, with only the standard library
and `speedrunner.agents.reading`.

It is a separate module there; the session gets its public functions as variables. `MOUNTS`, also a variable
of the session, has the paths of `trajectories`, `policies` and `sleeps`, which contain training episodes
only, with what the inducer may see of them (`speedrunner.store.history`).
"""

from __future__ import annotations

import inspect
import json
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from speedrunner.agents.reading import (
    ending_call,
    headline,
    list_calls,
    opening,
    replies,
    summarize_sleep,
    trajectory_lines,
    write_call,
)

MOUNTS: dict[str, str] = {}

_session: dict[str, Any] = {}
_primitives: dict[str, dict[str, Any]] = {}
"""Names of the primitives, each with the defaults of its parameters; `...` if there is none."""
_draft: str | None = None

_HEAD = re.compile(rb'{"episode":"([^"]+)",.*?"policy":(-?\d+)')
"""How the line of an episode begins. Quotes in texts are escaped."""


class NotAvailable(Exception):
    """A primitive was called although there is no environment."""

    __module__ = "builtins"  # tracebacks omit this module


class Trajectories(Sequence[dict[str, Any]]):
    """Recorded episodes, read from their files when they are used.

    It is used like a list, but keeps no episode in memory: long episodes of a whole run would not fit.

    Args:
        places: the file of each episode, and where its line begins there, in bytes.
    """

    def __init__(self, places: list[tuple[Path, int]]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Trajectories(self._places[index])
        path, begin = self._places[index]
        with path.open("rb") as file:
            file.seek(begin)
            return json.loads(file.readline())

    def __add__(self, others: Trajectories) -> Trajectories:
        return Trajectories(self._places + others._places)

    def __repr__(self) -> str:
        return f"<{len(self)} recorded episodes>"


def batches() -> list[int]:
    """Return the numbers of all batches, ascending."""
    return sorted(int(path.stem.split("_")[1]) for path in Path(MOUNTS["trajectories"]).glob("batch_*.jsonl"))


def versions() -> list[int]:
    """Return the numbers of all library versions, ascending."""
    return sorted(int(path.name[1:]) for path in Path(MOUNTS["policies"]).glob("v*"))


def load_trajectories(batch: int | None = None, policy: int | None = None) -> Trajectories:
    """Return recorded episodes, oldest first: all, or those of one batch or one library version."""
    places: list[tuple[Path, int]] = []
    for number in batches() if batch is None else [batch]:
        newest: dict[bytes, tuple[int, int]] = {}  # some episodes were repeated
        file, end = Path(MOUNTS["trajectories"], f"batch_{number:04d}.jsonl"), 0
        with file.open("rb") as lines:
            for line in lines:
                begin, end = end, end + len(line)
                head = _HEAD.match(line)
                assert head is not None
                newest[head[1]] = begin, int(head[2])
        places += [
            (file, begin) for _, (begin, version) in sorted(newest.items()) if policy in (None, version)
        ]
    return Trajectories(places)


def calls(trajectory: dict[str, Any]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield (turn from 1, depth, call) for every call that ran; the actor's own calls have depth 0.

    A call has two more keys than its record: `seen`, what the actor read after its own call ("" for deeper
    calls), and `ended`, whether the environment had ended the episode after it.
    """
    ending, seen = ending_call(trajectory), replies(trajectory)
    for number, depth, call in list_calls(trajectory):
        yield number, depth, {**call, "seen": "" if depth else seen[number - 1], "ended": call is ending}


def show(trajectory: dict[str, Any], first: int = 1, last: int | None = None) -> None:
    """Print turns: what the actor thought, called and read."""
    print(*trajectory_lines(trajectory, first, last), sep="\n")


def sleeps() -> list[dict[str, Any]]:
    """Return the earlier sleeps, oldest first: accepted and refused edits, errors and summaries."""
    files = Path(MOUNTS["sleeps"]).glob("*.json")
    summaries = [summarize_sleep(json.loads(path.read_text(encoding="utf-8"))) for path in files]
    return sorted(summaries, key=lambda summary: summary["sleep"])


def skill_stats() -> list[dict[str, Any]]:
    """Return a row for each skill and each library version in which it was called.

    A row counts its recorded calls at any depth, and those that ended in an error other than the episode's
    end. For the episodes with a call it has their number, successes, actions, output tokens and mean score
    (`None` without any score).
    """
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for played in load_trajectories():
        made = [call for _, _, call in calls(played) if call["kind"] == "skill"]
        outcome = played["outcome"]
        actions = sum(turn["executed"]["actions"] for turn in played["turns"] if turn["executed"] is not None)
        tokens = sum(turn["usage"]["completion"] for turn in played["turns"])
        for name in dict.fromkeys(call["name"] for call in made):
            row = rows.setdefault(
                (name, played["policy"]),
                {"skill": name, "version": played["policy"]}
                | dict.fromkeys(("calls", "errors", "episodes", "successes", "actions", "output_tokens"), 0)
                | {"score": []},
            )
            own = [call for call in made if call["name"] == name]
            row["calls"] += len(own)
            # As `CallNode.failed` of the store, which cannot be imported here.
            errors = [call["error"] for call in own if call["error"] is not None]
            row["errors"] += sum(
                not each.startswith(("EpisodeEnded:", "ActionLimitReached:")) for each in errors
            )
            row["episodes"] += 1
            if outcome is not None:
                row["successes"] += outcome["success"]
                row["score"].append(outcome["score"])
            row["actions"] += actions
            row["output_tokens"] += tokens
    for row in rows.values():
        row["score"] = round(sum(row["score"]) / len(row["score"]), 3) if row["score"] else None
    return [rows[key] for key in sorted(rows)]


def library_source(version: int) -> str:
    """Return the source of a past library version."""
    return Path(MOUNTS["policies"], f"v{version:04d}", "skills.py").read_text(encoding="utf-8")


def load_library(version: int) -> ModuleType:
    """Return a past library version as a module; its `skills_index` says which skills were public."""
    module = _module(f"library_v{version:04d}", library_source(version))
    index = Path(MOUNTS["policies"], f"v{version:04d}", "library.json").read_text(encoding="utf-8")
    vars(module)["skills_index"] = json.loads(index)["skills"]
    return module


def feed(trajectory: dict[str, Any], first: int = 1) -> None:
    """Let the draft's primitives return an episode's recorded results in order, from turn `first` on.

    A call that differs from the recorded one raises `NotAvailable`, and so does a call after the last one.
    """
    recorded = (
        call for turn, _, call in list_calls(trajectory) if turn >= first and call["kind"] == "primitive"
    )

    def make(name: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            if (call := next(recorded, None)) is None:
                raise NotAvailable(f"{name}: the episode has no further call")
            given = {**dict(zip(_primitives[name], args, strict=False)), **kwargs}
            if name != call["name"] or not _is_same(name, given, call["arguments"]):
                made, wanted = write_call(name, given), write_call(call["name"], call["arguments"])
                raise NotAvailable(f"{made} was called, and the episode's next call is {wanted}")
            if call["error"] is not None:
                raise RuntimeError(call["error"])
            return call["result"]

        return function

    vars(_session["library"]).update({name: make(name) for name in _primitives})


def _is_same(name: str, given: dict[str, Any], recorded: dict[str, Any]) -> bool:
    """Return whether a primitive gets the same arguments, with its defaults, however they are passed."""
    return {**_primitives[name], **given} == {**_primitives[name], **recorded}


def help(function: Callable[..., Any]) -> None:
    """Print the source of a function of this session or of a library."""
    print(inspect.getsource(function))


def begin(session: dict[str, Any], primitives: dict[str, dict[str, Any]]) -> None:
    """Add the functions and primitives to a session's variables; primitives raise an error when called."""
    global _session, _primitives
    _session, _primitives = session, primitives
    MOUNTS.update(session["MOUNTS"])
    offered = (
        batches,
        versions,
        load_trajectories,
        headline,
        opening,
        calls,
        show,
        sleeps,
        skill_stats,
        library_source,
        load_library,
        feed,
        help,
    )
    session.update({tool.__name__: tool for tool in (*offered, NotAvailable)})


def set_draft(source: str) -> None:
    """Make the draft importable as `library`, and a variable of that name.

    If the source is unchanged, the existing module stays, with everything that the session has put in it.
    """
    global _draft
    if source != _draft:
        _draft = None
        _session["library"] = _module("library", source)
        _draft = source


def _module(name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses look for a class's module here
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module.__file__ = file
    vars(module).update({name: _primitive(name) for name in _primitives})
    exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    return module


def _primitive(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotAvailable(f"{name} is not available here: there is no environment, only recorded data")

    function.__name__ = function.__qualname__ = name
    return function
