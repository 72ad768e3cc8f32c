"""An episode's page: its turns, and the playback of its primitives."""

from __future__ import annotations

import threading
from collections import Counter
from functools import cached_property
from pathlib import Path

import msgspec

from speedrunner.agents.failure import describe_failure, find_first_error
from speedrunner.agents.reading import task_line
from speedrunner.pages.pictures import CREDITS, Picture
from speedrunner.pages.playback import PIECE, Step, count_pieces, list_modules, list_steps, make_piece
from speedrunner.pages.shown_calls import show_calls
from speedrunner.pages.tiles import Tile
from speedrunner.pages.view_parts import TURNS, Context, NotFound, heading, page_part
from speedrunner.pages.worlds import DRAWN, replay_pictures
from speedrunner.store.episode_summary import count_repeats
from speedrunner.store.records import Trajectory
from speedrunner.store.run_data import RunData, load

_replaying = threading.Lock()
"""Held while an episode is replayed: a page asks for several pieces of its playback at the same time."""


class ViewedEpisode:
    """An episode as pages show it. Its parts are made when they are needed, and kept."""

    def __init__(self, run: RunData, trajectory: Trajectory) -> None:
        self.run = run
        self.trajectory = trajectory

    @classmethod
    def read(cls, path: Path, key: str, *state: object) -> ViewedEpisode:
        """Read one attempt at an episode. Raises `NotFound`.

        Args:
            state: which attempt of which run; it only distinguishes episodes that are kept.
        """
        run = load(path)
        return cls(run, find_episode(run, key))

    @cached_property
    def steps(self) -> list[Step]:
        """Return the primitives that it called."""
        return list_steps(self.trajectory)

    @cached_property
    def _pictures(self) -> list[Picture]:
        return replay_pictures(self.run, self.trajectory)

    def piece(self, number: int) -> bytes:
        """Return one piece of the playback as a script. Raises `NotFound`."""
        if not 1 <= number <= count_pieces(self.steps):
            raise NotFound(f"its playback has {count_pieces(self.steps)} pieces")
        with _replaying:
            pictures = self._pictures
        piece = make_piece(self.steps, list_modules(self.run, self.trajectory), pictures, number)
        return b"addPlayback(%d, %b);\n" % (number, msgspec.json.encode(piece))


def find_episode(run: RunData, key: str) -> Trajectory:
    """Return a finished episode, or one that was played in a sleep. Raises `NotFound`."""
    for record in run.sleeps if key.startswith("sleep/") else ():
        for again in reversed(record.attempts):
            if again.episode == key:
                return again
    row = next((row for row in run.rows if row.episode == key), None)
    found = None if row is None else run.find(row)
    if found is None:
        raise NotFound(f"the run does not have episode {key} now")
    return found


def episode_page(run: RunData, seen: ViewedEpisode, page: int) -> Context:
    """Return some turns of an episode, and what is above them. Raises `NotFound`."""
    trajectory = seen.trajectory
    part = page_part(trajectory.turns, page, TURNS)
    first = part["first"]
    keys = sorted(row.episode for row in run.rows)
    at = keys.index(trajectory.episode) if trajectory.episode in keys else None
    error = find_first_error(trajectory.turns)
    outcome = trajectory.outcome
    return {
        **heading(run),
        "trajectory": trajectory,
        "result": _describe_result(trajectory),
        "task": task_line({"turns": msgspec.to_builtins(trajectory.turns[:1])}),
        "failure": describe_failure(trajectory),
        "error": None if error is None else error + 1,
        "numbers": _list_numbers(trajectory),
        "detail": "" if outcome is None else msgspec.json.encode(outcome.detail).decode(),
        "before": keys[at - 1] if at else None,
        "after": keys[at + 1] if at is not None and at + 1 < len(keys) else None,
        "credit": CREDITS.get(trajectory.task.env, ""),
        "playback": _playback(seen.steps, trajectory, first),
        **part,
        "turns": [
            (number, turn, None if turn.executed is None else show_calls(turn.executed))
            for number, turn in enumerate(part["shown"], start=first)
        ],
    }


def _describe_result(trajectory: Trajectory) -> tuple[str, str]:
    """Return the kind and the text of an episode's badge."""
    outcome, text = trajectory.outcome, trajectory.termination.value.replace("_", " ")
    if outcome is None:
        return "warn", text
    return "good" if outcome.success else "bad", f"{text}, score {outcome.score:.3g}"


def _list_numbers(trajectory: Trajectory) -> list[Tile]:
    """Return the headline numbers of an episode."""
    usage, executed = trajectory.usage, [turn.executed for turn in trajectory.turns if turn.executed]
    kinds = Counter(node.kind for node in executed)
    invalid = sum(turn.call is None for turn in trajectory.turns)
    repeated = count_repeats(trajectory.turns)
    waited = sum(turn.queued_s for turn in trajectory.turns)
    cached = f"{usage.cached / usage.prompt:.0%} cached" if usage.prompt else ""
    found = [
        ("LLM calls", f"{len(trajectory.turns):,}", f"{invalid:,} invalid, {repeated:,} repeated"),
        (
            "Actions",
            f"{sum(node.actions for node in executed):,}",
            f"calls: {kinds['skill']:,} of skills, {kinds['primitive']:,} of primitives",
        ),
        ("Output tokens", f"{usage.completion:,}", f"{usage.reasoning:,} reasoning"),
        ("Prompt tokens", f"{usage.prompt:,}", cached),
        ("Seconds", f"{trajectory.seconds:,.1f}", f"{waited:,.1f} waited" if waited else ""),
    ]
    return [Tile(*each) for each in found]


def _playback(steps: list[Step], trajectory: Trajectory, first: int) -> Context | None:
    """Return the frame of the playback; `None` if the episode has no primitive.

    Args:
        first: number of the page's first turn.
    """
    if not steps:
        return None
    starts: dict[int, int] = {}
    for position, step in enumerate(steps, start=1):
        starts.setdefault(step.turn, position)
    later = (position for turn, position in starts.items() if turn >= first)
    return {
        "last": len(steps),
        "pieces": range(1, count_pieces(steps) + 1),
        "size": PIECE,
        "turns": TURNS,
        "start": next(later, len(steps)) if first > 1 else 0,
        "error": next((at for at, step in enumerate(steps, start=1) if step.node.error is not None), 0),
        "starts": starts,
        "pictured": trajectory.task.env in DRAWN,
    }
