"""A run's requests, turns, calls and skills as data frames, one row per record.

`COLUMNS` defines the columns, so an empty run has them, too. Missing texts and unknown USD are NaN, missing
integers are NA.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from serving.usage import Usage
from speedrunner.results.frames import make_frame
from speedrunner.results.pricing import PriceBook
from speedrunner.store.labels import Labels
from speedrunner.store.records import CallNode, Trajectory, Turn
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key

if TYPE_CHECKING:
    import pandas

RecordTable = Literal["requests", "turns", "calls", "skills"]

Row = dict[str, Any]
"""The values of a row, by column."""

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


def frame_records(run: RunData, table: RecordTable, book: PriceBook) -> pandas.DataFrame:
    """Return one of a run's tables. Raises `StorageError`.

    Args:
        book: prices the column `usd` of requests and turns.
    """
    if table == "requests":
        rows = _requests(run, book)
    elif table == "turns":
        rows = _turns(run, book)
    else:
        rows = _calls(run) if table == "calls" else _skills(run)
    return make_frame(rows, COLUMNS[table])


def _requests(run: RunData, book: PriceBook) -> Iterator[Row]:
    for row in run.requests:
        labels = msgspec.structs.asdict(Labels.of(row.labels))
        yield {
            **msgspec.structs.asdict(row),
            **{f"labels_{name}": value for name, value in labels.items()},
            **_tokens("usage", row.usage),
            **_tokens("at_most", row.at_most),
            "usd": book.by_tokens(row.model, row.usage),
        }


def _turns(run: RunData, book: PriceBook) -> Iterator[Row]:
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
            "usd": book.by_tokens(model, turn.usage),
        }


def _calls(run: RunData) -> Iterator[Row]:
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


def _skills(run: RunData) -> Iterator[Row]:
    for version in run.policies.versions():
        for skill in run.policies.load(version).skills:
            yield {"policy": version} | msgspec.structs.asdict(skill)


def _tokens(prefix: str, usage: Usage | None) -> Row:
    return {} if usage is None else {f"{prefix}_{name}": getattr(usage, name) for name in TOKENS}


def _iterate_turns(run: RunData) -> Iterator[tuple[Row, Turn]]:
    """Yield every turn of the finished episodes, then those of the sleeps, with the columns `PLACE`."""
    points = {(row.episode, row.attempt): row.checkpoint for row in run.episodes}
    for phase, played in (("train", run.trajectories()), ("test", run.evaluations())):
        for each in played:
            yield from _number(each, phase, points.get((each.episode, each.attempt)))
    for record in run.sleeps:
        place = {"phase": "sleep", "episode": sleep_key(record.sleep), "attempt": record.attempt}
        turns = (
            msgspec.structs.replace(turn, role=agent.role, conversation=number)
            for number, agent in enumerate(record.agents)
            for turn in agent.turns
        )
        for number, turn in enumerate(turns, start=1):
            yield {**place, "policy": record.sleep - 1, "turn": number}, turn
        for again in record.attempts:
            yield from _number(again, "sleep", None)


def _number(played: Trajectory, phase: str, checkpoint: int | None) -> Iterator[tuple[Row, Turn]]:
    place = {"phase": phase, "checkpoint": checkpoint, "episode": played.episode}
    place |= {"attempt": played.attempt, "policy": played.policy}
    for number, turn in enumerate(played.turns, start=1):
        yield {**place, "turn": number}, turn


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
