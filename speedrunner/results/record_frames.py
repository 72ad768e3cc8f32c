"""A run's requests, turns, calls and skills as data frames, one row per record.

`COLUMNS` defines the columns, so an empty run has them, too. Missing texts and unknown USD are NaN, missing
integers are NA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from serving.usage import Usage
from speedrunner.store.labels import Labels
from speedrunner.store.records import CallNode, Turn
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key

if TYPE_CHECKING:
    import pandas

RecordTable = Literal["requests", "turns", "calls", "skills"]

Row = dict[str, Any]
"""The values of a row, by column."""

Cost = Callable[[str | None, Usage | None], float | None]
"""Returns the USD for a model's tokens; `None` if they are unknown."""

TEXT, COUNT, MAYBE, REAL, FLAG = "str", "int64", "Int64", "float64", "bool"
"""Types of columns. `MAYBE` is an integer that may be missing."""

PLACE = {
    **{"phase": TEXT, "checkpoint": MAYBE, "episode": TEXT},
    **dict.fromkeys(("attempt", "policy", "turn"), COUNT),
}
"""The position of a turn: `episode` is the key of the episode or sleep; turns are counted from 1."""

TOKENS = ("prompt", "cached", "completion", "reasoning")

COLUMNS: dict[RecordTable, dict[str, str]] = {
    "requests": {
        **{"request": TEXT, "retry": COUNT, "time": REAL},
        **{"labels_phase": TEXT, "labels_policy": MAYBE, "labels_episode": TEXT},
        **{"labels_attempt": MAYBE, "labels_role": TEXT, "labels_replica": MAYBE},
        **{"model": TEXT, "status": TEXT, "wasted": FLAG},
        **{f"usage_{name}": MAYBE for name in TOKENS},
        **{"seconds": REAL, "error": TEXT, "cacheable": MAYBE},
        **{f"at_most_{name}": MAYBE for name in TOKENS},
        **{"thought_cut": FLAG, "usd": REAL},
    },
    "turns": {
        **PLACE,
        **{"role": TEXT, "conversation": COUNT, "model": TEXT, "call": TEXT, "kind": TEXT, "actions": COUNT},
        **{"error": TEXT, "text": TEXT, "reasoning": TEXT},
        **{f"usage_{name}": COUNT for name in TOKENS},
        **{"usd": REAL, "seconds": REAL, "queued_s": REAL},
    },
    "calls": {
        **PLACE,
        **{"call": COUNT, "parent": MAYBE, "depth": COUNT, "name": TEXT, "kind": TEXT, "arguments": TEXT},
        **{"result": TEXT, "error": TEXT, "actions": COUNT, "seconds": REAL, "omitted": COUNT, "line": MAYBE},
    },
    "skills": {"policy": COUNT, "name": TEXT, "public": FLAG, "created": COUNT, "edited": COUNT},
}
"""Columns with their types. A turn's `actions` and `kind` describe what was executed for it. A turn's calls
are numbered from 0, callers first; the turn's own call has no parent."""


def frame_records(run: RunData, table: RecordTable, cost: Cost) -> pandas.DataFrame:
    """Return one of a run's tables. Raises `StorageError`.

    Args:
        cost: fills the column `usd` of requests and turns.
    """
    import pandas

    rows = _ROWS[table](run, cost)
    columns = COLUMNS[table]
    values = [tuple(map(row.get, columns)) for row in rows]
    found = pandas.DataFrame(values, columns=[*columns], dtype=object)
    return found.astype(columns)


def _requests(run: RunData, cost: Cost) -> Iterator[Row]:
    for row in run.requests:
        labels = msgspec.structs.asdict(Labels.of(row.labels))
        yield {
            **msgspec.structs.asdict(row),
            **{f"labels_{name}": value for name, value in labels.items()},
            **_tokens("usage", row.usage),
            **_tokens("at_most", row.at_most),
            "usd": cost(row.model, row.usage),
        }


def _turns(run: RunData, cost: Cost) -> Iterator[Row]:
    models = {Labels.of(row.labels).role: row.model for row in run.requests}
    for place, turn in _iterate_turns(run):
        model, executed = models.get(turn.role), turn.executed
        yield {
            **msgspec.structs.asdict(turn),
            **place,
            **_tokens("usage", turn.usage),
            "model": model,
            "call": turn.call and turn.call.name,
            "kind": executed and executed.kind,
            "actions": executed.actions if executed else 0,
            "usd": cost(model, turn.usage),
        }


def _calls(run: RunData, _: Cost) -> Iterator[Row]:
    for place, turn in _iterate_turns(run):
        if turn.executed is not None:
            for call, (parent, depth, node) in enumerate(_tree(turn.executed)):
                yield {
                    **msgspec.structs.asdict(node),
                    **place,
                    **{"call": call, "parent": parent, "depth": depth},
                    "arguments": msgspec.json.encode(node.arguments).decode(),
                    "result": _text(node.result),
                    "line": None if node.line is msgspec.UNSET else node.line,
                }


def _skills(run: RunData, _: Cost) -> Iterator[Row]:
    for version in run.policies.versions():
        for skill in run.policies.load(version).skills:
            yield {"policy": version} | msgspec.structs.asdict(skill)


_ROWS: dict[RecordTable, Callable[[RunData, Cost], Iterator[Row]]] = {
    "requests": _requests,
    "turns": _turns,
    "calls": _calls,
    "skills": _skills,
}


def _tokens(prefix: str, usage: Usage | None) -> Row:
    return {} if usage is None else {f"{prefix}_{name}": getattr(usage, name) for name in TOKENS}


def _iterate_turns(run: RunData) -> Iterator[tuple[Row, Turn]]:
    """Yield every turn of the finished episodes, then those of the sleeps, with the columns `PLACE`."""
    for (phase, checkpoint, episode, attempt, policy), turns in _conversations(run):
        for number, turn in enumerate(turns, start=1):
            yield dict(zip(PLACE, (phase, checkpoint, episode, attempt, policy, number), strict=True)), turn


def _conversations(run: RunData) -> Iterator[tuple[tuple[str, int | None, str, int, int], list[Turn]]]:
    """Yield the same turns by phase, checkpoint, key, attempt and policy."""
    points = {(row.episode, row.attempt): row.checkpoint for row in run.episodes}
    for phase, played in (("train", run.trajectories()), ("test", run.evaluations())):
        for each in played:
            point = points.get((each.episode, each.attempt))
            yield (phase, point, each.episode, each.attempt, each.policy), each.turns
    for record in run.sleeps:
        turns = [
            msgspec.structs.replace(turn, role=agent.role, conversation=number)
            for number, agent in enumerate(record.agents)
            for turn in agent.turns
        ]
        yield ("sleep", None, sleep_key(record.sleep), record.attempt, record.sleep - 1), turns
        for again in record.attempts:
            yield ("sleep", None, again.episode, again.attempt, again.policy), again.turns


def _tree(root: CallNode) -> Iterator[tuple[int | None, int, CallNode]]:
    """Yield each call with its caller's number and its depth, in the order in which they started."""
    waiting: list[tuple[int | None, int, CallNode]] = [(None, 0, root)]
    number = 0
    while waiting:
        parent, depth, node = waiting.pop()
        yield parent, depth, node
        waiting += [(number, depth + 1, below) for below in reversed(node.calls)]
        number += 1


def _text(result: object) -> str | None:
    """Return a returned value as text: strings as they are, everything else as JSON."""
    return result if result is None or isinstance(result, str) else msgspec.json.encode(result).decode()
