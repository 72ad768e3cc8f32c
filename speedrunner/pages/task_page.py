"""Before and after: the episodes of a test task at all checkpoints, and where the called skills come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

import msgspec

from speedrunner.agents.reading import task_line, write_call
from speedrunner.config.console import shorten
from speedrunner.pages.pages import Context, NotFound, heading
from speedrunner.pages.skill_origins import find_origins
from speedrunner.pages.turns import describe_result
from speedrunner.store.records import CallNode, EpisodeRow, Trajectory
from speedrunner.store.run_data import RunData

FIRST, LAST = 20, 10
"""Turns of an episode that are shown in short: those at its start and at its end."""

CALL_CHARS, RESULT_CHARS = 160, 200
"""Characters of a call and of its result in short."""

READ_TURNS = 20_000
"""Turns of one evaluation up to which the list of tasks reads its episodes for the tasks' texts."""


class ShortTurn(msgspec.Struct, frozen=True):
    """One turn in short, or equal turns in a row.

    Attributes:
        number: from 1; of several turns, the first.
        skill: name of the called skill; empty for other calls.
        ran: number of calls below.
        times: number of turns.
    """

    number: int
    call: str
    skill: str
    result: str
    failed: bool
    ran: int
    times: int = 1


class Played(msgspec.Struct, frozen=True):
    """One episode of the task.

    Attributes:
        called: skills that the actor called, with the number of calls.
        helpers: skills that only other code called.
        start, end: its turns in short; `left_out` turns between them are not shown.
    """

    row: EpisodeRow
    called: dict[str, int]
    helpers: list[str]
    start: list[ShortTurn]
    end: list[ShortTurn]
    left_out: int


class TaskLine(msgspec.Struct, frozen=True):
    """One test task in the list of tasks.

    Attributes:
        number: the last part of its episodes' keys.
        text: the task as the actor reads it; empty if it was not read.
        rows: by checkpoint.
    """

    number: int
    text: str
    rows: dict[int, EpisodeRow]

    @property
    def ends(self) -> tuple[EpisodeRow, EpisodeRow]:
        """Return the first and the last episode."""
        rows = [self.rows[point] for point in sorted(self.rows)]
        return rows[0], rows[-1]

    @property
    def gain(self) -> float | None:
        """Return the last score minus the first; `None` unless both have a score."""
        first, last = (row.score for row in self.ends)
        return None if first is None or last is None else last - first


def tasks_page(run: RunData) -> Context:
    """Return all test tasks: first the largest changes of the score, then the most saved tokens."""
    tasks = _group(run)
    points = sorted({point for rows in tasks.values() for point in rows})
    texts = _read_texts(run, tasks, points)
    lines = [TaskLine(number, texts.get(number, ""), rows) for number, rows in tasks.items()]

    def place(line: TaskLine) -> tuple[float, float, int]:
        first, last = line.ends
        return -abs(line.gain or 0.0), last.usage.completion - first.usage.completion, line.number

    return {
        **heading(run),
        "tasks": sorted(lines, key=place),
        "points": points,
        "verdict": verdict,
    }


def task_page(run: RunData, number: int) -> Context:
    """Return the episodes of a test task, side by side. Raises `NotFound`."""
    tasks = _group(run)
    if number not in tasks:
        raise NotFound(f"no finished episode plays test task {number}")
    rows = tasks[number]
    found = [run.find(rows[point]) for point in sorted(rows)]
    episodes = [each for each in found if each is not None]
    played = [_shorten(rows[point], each) for point, each in zip(sorted(rows), found, strict=True) if each]
    numbers = sorted(tasks)
    at = numbers.index(number)
    return {
        **heading(run),
        "number": number,
        "text": next((text for text in map(task_text, episodes) if text), ""),
        "task": next(iter(rows.values())).task,
        "played": played,
        "origins": find_origins(
            run,
            [(each.row.checkpoint, each.row.policy, [*each.called, *each.helpers]) for each in played],
        ),
        "libraries": set(run.policies.versions()),
        "sleeps": sorted(each.sleep for each in run.sleeps),
        "previous": numbers[at - 1] if at else None,
        "following": numbers[at + 1] if at + 1 < len(numbers) else None,
        "verdict": verdict,
    }


def task_text(played: Trajectory) -> str:
    """Return the first paragraph of the task as the actor read it, in one line."""
    return task_line({"turns": msgspec.to_builtins(played.turns[:1])})


def verdict(row: EpisodeRow) -> str:
    """Return the kind of the badge for an episode's result."""
    if row.score is None:
        return "warn"
    return "good" if row.success else "bad" if row.score == 0 else "plain"


def _group(run: RunData) -> dict[int, dict[int, EpisodeRow]]:
    """Return the rows of held-out episodes by task number and checkpoint."""
    found: dict[int, dict[int, EpisodeRow]] = {}
    for row in run.rows:
        number = row.episode.rpartition("/")[2]
        if row.phase == "test" and number.isdecimal():
            found.setdefault(int(number), {})[row.checkpoint] = row
    return dict(sorted(found.items()))


def _read_texts(run: RunData, tasks: dict[int, dict[int, EpisodeRow]], points: list[int]) -> dict[int, str]:
    """Return the tasks' texts from the first evaluation; empty if reading it would take long."""
    if (
        not points
        or sum(rows[points[0]].llm_calls for rows in tasks.values() if points[0] in rows) > READ_TURNS
    ):
        return {}
    return {int(each.episode.rpartition("/")[2]): task_text(each) for each in run.played("test", points[0])}


def _shorten(row: EpisodeRow, played: Trajectory) -> Played:
    """Return an episode in short."""
    called: Counter[str] = Counter()
    helpers: dict[str, None] = {}
    for turn in played.turns:
        if turn.executed is not None:
            called.update([turn.executed.name] if turn.executed.kind == "skill" else [])
            helpers |= {each.name: None for each in turn.executed.below() if each.kind == "skill"}
    count = len(played.turns)
    start = range(count if count <= FIRST + LAST else FIRST)
    end = range(max(len(start), count - LAST), count)
    return Played(
        row,
        dict(called),
        sorted(name for name in helpers if name not in called),
        _merge_repeats(_short_turn(played, place) for place in start),
        _merge_repeats(_short_turn(played, place) for place in end),
        count - len(start) - len(end),
    )


def _short_turn(played: Trajectory, place: int) -> ShortTurn:
    turn = played.turns[place]
    node = turn.executed
    if node is None:
        called = f"{turn.call.name} was not completed" if turn.call else "no valid call"
        return ShortTurn(place + 1, called, "", _cut(turn.error or "", RESULT_CHARS), True, 0)
    return ShortTurn(
        place + 1,
        _cut(write_call(node.name, node.arguments), CALL_CHARS),
        node.name if node.kind == "skill" else "",
        _cut(describe_result(node), RESULT_CHARS),
        node.error is not None,
        _count_below(node),
    )


def _merge_repeats(turns: Iterable[ShortTurn]) -> list[ShortTurn]:
    """Return turns with equal neighbors merged into one."""
    found: list[ShortTurn] = []
    for _, group in groupby(turns, key=lambda turn: (turn.call, turn.result, turn.failed)):
        first, *more = group
        found.append(msgspec.structs.replace(first, times=1 + len(more)))
    return found


def _count_below(node: CallNode) -> int:
    return sum(1 + each.omitted for each in node.below()) + node.omitted


def _cut(text: str, chars: int) -> str:
    return shorten(" ".join(text.split()), chars)
