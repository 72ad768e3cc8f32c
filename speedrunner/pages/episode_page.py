"""The content of an episode's page, with its pictures and playback."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from speedrunner.agents.failure import describe_failure, find_first_error
from speedrunner.agents.reading import task_line
from speedrunner.pages.pages import TURNS, Context, NotFound, heading, page_part
from speedrunner.pages.pictures import Picture
from speedrunner.pages.playback import PIECE, Step, count_pieces, list_modules, list_steps, make_piece
from speedrunner.pages.tile_images import CREDITS, tile_image, tile_symbols
from speedrunner.pages.tiles import Tile
from speedrunner.pages.turns import Room, Shown, show_calls
from speedrunner.pages.worlds import DRAWN, TILED, Worlds, replay_worlds
from speedrunner.store.episode_summary import count_repeats
from speedrunner.store.records import Module, Trajectory, Turn
from speedrunner.store.run_data import RunData, load
from speedrunner.store.stored_run import RunDirectoryError

_replaying = threading.Lock()
"""Held while an episode is replayed: pages ask for pictures and playback at the same time."""


class ViewedEpisode:
    """An episode as pages show it. Its parts are made when they are needed, and kept."""

    def __init__(self, run: RunData, trajectory: Trajectory) -> None:
        self.run = run
        self.trajectory = trajectory

    @classmethod
    def read(cls, path: Path, stamp: object, key: str, attempt: int) -> ViewedEpisode:
        """Read one attempt, which never changes. Raises `NotFound`."""
        run = load(path, skip_broken=True)
        return cls(run, find_episode(run, key))

    @property
    def worlds(self) -> Worlds:
        """Return its pictures."""
        with _replaying:
            return self._worlds

    @cached_property
    def steps(self) -> list[Step]:
        """Return the primitives that it called."""
        return list_steps(self.trajectory)

    @cached_property
    def modules(self) -> list[Module]:
        """Return the modules of skills that it loaded."""
        return list_modules(self.run, self.trajectory)

    @cached_property
    def _worlds(self) -> Worlds:
        return replay_worlds(self.run, self.trajectory)

    def pictures(self, page: int) -> dict[int, Picture]:
        """Return the world before each turn of a page, by the turn's number, and after the last one."""
        if self.trajectory.task.env not in TILED:
            return {}
        end, seen = len(self.trajectory.turns) + 1, self.worlds.turns
        turns = range((page - 1) * TURNS + 1, min(page * TURNS, end) + 1)
        return {turn: seen[turn - 1] for turn in turns if turn - 1 in seen}

    def piece(self, number: int) -> bytes:
        """Return one piece of the playback as a script. Raises `NotFound`."""
        if not 1 <= number <= count_pieces(self.steps):
            raise NotFound(f"its playback has {count_pieces(self.steps)} pieces")
        piece = make_piece(self.steps, self.modules, self.worlds, number)
        return b"addPlayback(%d, %b);\n" % (number, msgspec.json.encode(piece))


def episode_page(run: RunData, seen: ViewedEpisode, page: int, *, static: bool) -> Context:
    """Return some turns of an episode, and what is above them. Raises `NotFound`.

    Args:
        static: whether the page contains its pictures.
    """
    trajectory = seen.trajectory
    part = page_part(trajectory.turns, page, TURNS)
    first = part["first"] - 1
    keys = sorted(row.episode for row in run.rows)
    at = keys.index(trajectory.episode) if trajectory.episode in keys else None
    error = find_first_error(trajectory.turns)
    shown = seen.pictures(page) if static else {}
    return {
        **heading(run),
        "trajectory": trajectory,
        "status": _result(trajectory),
        "task": task_line({"turns": msgspec.to_builtins(trajectory.turns[:1])}),
        "failure": describe_failure(trajectory),
        "error": None if error is None else error + 1,
        "numbers": _numbers(trajectory),
        "detail": ""
        if trajectory.outcome is None
        else msgspec.json.encode(trajectory.outcome.detail).decode(),
        "before": keys[at - 1] if at else None,
        "after": keys[at + 1] if at is not None and at + 1 < len(keys) else None,
        "pictured": trajectory.task.env in TILED,
        "pictures": {turn: picture.draw() for turn, picture in shown.items()},
        "credit": CREDITS.get(trajectory.task.env, ""),
        "symbols": tile_symbols(trajectory.task.env, _tiles(shown.values())),
        "playback": _playback(seen, first),
        **part,
        "turns": list(_show_turns(trajectory, first)),
    }


def pictures_data(seen: ViewedEpisode, page: int) -> dict[str, Any]:
    """Return the pictures of a page's turns, and the images of their tiles, as plain JSON."""
    shown = seen.pictures(page)
    env = seen.trajectory.task.env
    return {
        "tiles": {name: tile_image(env, name) for name in sorted(_tiles(shown.values()))},
        "pictures": {turn: str(picture.draw()) for turn, picture in shown.items()},
    }


def find_episode(run: RunData, key: str) -> Trajectory:
    """Return a finished episode, or one that was played in a sleep. Raises `NotFound`."""
    if key.startswith("sleep/"):
        for record in run.sleeps:
            for again in reversed(record.attempts):
                if again.episode == key:
                    return again
    row = next((row for row in run.rows if row.episode == key), None)
    found = None if row is None else run.find(row)
    if found is None:
        if row is not None and run.left_out:
            raise RunDirectoryError(f"episode {key} cannot be shown: {'; '.join(run.left_out)}")
        raise NotFound(f"the run does not have episode {key} now")
    return found


def _tiles(shown: Iterable[Picture]) -> set[str]:
    return set[str]().union(*(picture.tiles for picture in shown))


def _result(trajectory: Trajectory) -> Context:
    """Return the kind and the text of an episode's badge."""
    outcome, ended = trajectory.outcome, trajectory.termination
    text = ended.value.replace("_", " ")
    if outcome is None:
        return {"kind": "warn", "text": text, "note": ""}
    kind = "good" if outcome.success else "bad"
    return {"kind": kind, "text": f"{text}, score {outcome.score:.3g}", "note": ""}


def _numbers(trajectory: Trajectory) -> list[Tile]:
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


def _show_turns(trajectory: Trajectory, first: int) -> Iterator[tuple[int, Turn, Shown | None, str]]:
    """Yield each turn of a page with its number, its calls, and the address of all calls if some are cut."""
    room = Room()
    for number, turn in enumerate(trajectory.turns[first : first + TURNS], start=first + 1):
        room.cut = False
        shown = None if turn.executed is None else show_calls(turn.executed, room)
        is_cut = room.cut or (shown is not None and shown.is_cut)
        yield number, turn, shown, f"calls-{number}-1.html" if is_cut else ""


def _playback(seen: ViewedEpisode, first: int) -> Context | None:
    """Return the frame of the playback; `None` if the episode has no primitive.

    Args:
        first: index of the page's first turn.
    """
    steps = seen.steps
    if not steps:
        return None
    starts: dict[int, int] = {}
    for position, step in enumerate(steps, start=1):
        starts.setdefault(step.turn, position)
    later = (position for turn, position in starts.items() if turn > first)
    return {
        "last": len(steps),
        "pieces": range(1, count_pieces(steps) + 1),
        "size": PIECE,
        "turns": TURNS,
        "start": next(later, len(steps)) if first else 0,
        "error": next((at for at, step in enumerate(steps, start=1) if step.node.error is not None), 0),
        "starts": starts,
        "pictured": seen.trajectory.task.env in DRAWN,
    }
