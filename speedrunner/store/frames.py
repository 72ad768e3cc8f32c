"""A run's requests, turns, calls and skills as data frames, one row per record.

`speedrunner.results` has the frames of episodes and sleeps. The record types define the columns, so an empty
run has them, too. Nested records become columns such as `usage_prompt` and `labels_role`. Integer columns
with missing values are `Int64`; missing texts and unknown USD are NaN.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pandas

from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.store.labels import Labels
from speedrunner.store.records import CallNode, Skill, Turn
from speedrunner.store.stored_run import sleep_key

if TYPE_CHECKING:
    from speedrunner.store.run_data import RunData

RecordTable = Literal["requests", "turns", "calls", "skills"]

Row = dict[str, Any]
"""Values by the names of a record's fields."""

Cost = Callable[[str | None, Usage | None], float | None]
"""Returns the USD for a model's tokens; `None` if they are unknown."""


class _Place(msgspec.Struct, kw_only=True):
    """The position of a turn.

    Attributes:
        episode: key of the episode or sleep.
        policy: version in use.
        turn: number within the episode or sleep, from 1.
    """

    phase: str
    checkpoint: int | None
    episode: str
    attempt: int
    policy: int
    turn: int


class _TurnRow(_Place, kw_only=True):
    """An answered request with its call; `actions` and `kind` describe what was executed for it."""

    role: str
    conversation: int
    model: str | None
    call: str | None
    kind: str | None
    actions: int
    error: str | None
    text: str
    reasoning: str
    usage: Usage
    usd: float | None
    seconds: float
    queued_s: float


class _CallRow(_Place, kw_only=True):
    """A call, numbered within the turn from 0, callers first. The turn's own call has no parent."""

    call: int
    parent: int | None
    depth: int
    name: str
    kind: str
    arguments: str
    result: str | None
    error: str | None
    actions: int
    seconds: float
    omitted: int
    line: int | None


def frame_records(run: RunData, table: RecordTable, cost: Cost) -> pandas.DataFrame:
    """Return one of a run's tables. Raises `StorageError`.

    Args:
        cost: fills the column `usd` of requests and turns.
    """
    hints, rows = _TABLES[table]
    found = list(rows(run, cost))
    columns = {
        "_".join(path): pandas.Series([_value(row, path) for row in found], dtype=dtype)
        for path, dtype in _columns(hints)
    }
    return pandas.DataFrame(columns)


def _requests(run: RunData, cost: Cost) -> Iterator[Row]:
    for row in run.requests:
        usd = cost(row.model, row.usage)
        yield msgspec.structs.asdict(row) | {"labels": Labels.of(row.labels), "usd": usd}


def _turns(run: RunData, cost: Cost) -> Iterator[Row]:
    models = {Labels.of(row.labels).role: row.model for row in run.requests}
    for place, turn in _iterate_turns(run):
        model, executed = models.get(turn.role), turn.executed
        yield msgspec.structs.asdict(turn) | {
            **place,
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
                yield msgspec.structs.asdict(node) | {
                    **place,
                    "call": call,
                    "parent": parent,
                    "depth": depth,
                    "arguments": msgspec.json.encode(node.arguments).decode(),
                    "result": _text(node.result),
                    "line": None if node.line is msgspec.UNSET else node.line,
                }


def _skills(run: RunData, _: Cost) -> Iterator[Row]:
    for version in run.policies.versions():
        for skill in run.policies.load(version).skills:
            yield {"policy": version} | msgspec.structs.asdict(skill)


def _hints(record: Any, **more: Any) -> dict[str, Any]:
    """Return the types of a record's fields, except its `format`."""
    hints = get_type_hints(record)
    hints.pop("format", None)
    return hints | more


_TABLES: dict[RecordTable, tuple[dict[str, Any], Callable[[RunData, Cost], Iterator[Row]]]] = {
    "requests": (_hints(LedgerRow, labels=Labels, usd=float | None), _requests),
    "turns": (_hints(_TurnRow), _turns),
    "calls": (_hints(_CallRow), _calls),
    "skills": ({"policy": int} | _hints(Skill), _skills),
}


def _iterate_turns(run: RunData) -> Iterator[tuple[Row, Turn]]:
    """Yield every turn of the finished episodes, then those of the sleeps, with the fields of `_Place`."""
    for (phase, checkpoint, episode, attempt, policy), turns in _conversations(run):
        for number, turn in enumerate(turns, start=1):
            place = {"phase": phase, "checkpoint": checkpoint, "episode": episode}
            yield place | {"attempt": attempt, "policy": policy, "turn": number}, turn


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


def _columns(
    hints: Mapping[str, Any], path: tuple[str, ...] = (), missing: bool = False
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and type of each column. `missing`: whether values may be missing."""
    for name, hint in hints.items():
        kinds, here = [hint], missing
        if get_origin(hint) in (Union, types.UnionType):
            kinds = [kind for kind in get_args(hint) if kind is not type(None)]
            here |= len(kinds) < len(get_args(hint))
        (kind,) = kinds
        if dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            yield from _columns(_hints(kind), (*path, name), here)
        else:
            yield (*path, name), _DTYPES.get(kind, ("str", "str"))[here]


_DTYPES = {int: ("int64", "Int64"), bool: ("bool", "boolean"), float: ("float64", "float64")}
"""Types of complete columns, and of columns with missing values; every other type is text."""


def _value(row: Row, path: tuple[str, ...]) -> Any:
    value = row[path[0]]
    for name in path[1:]:
        value = None if value is None else getattr(value, name)
    return value.value if isinstance(value, enum.Enum) else value
