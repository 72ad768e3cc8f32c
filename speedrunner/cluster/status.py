"""Status of runs, read from their directories; any user can do that at any time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec
from msgspec.structs import replace

from speedrunner.runs.plan import step_name, unfinished_steps
from speedrunner.runs.setup import SETUP_ERRORS
from speedrunner.runs.stored_setup import set_up_stored
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import load
from speedrunner.store.run_lock import owner_of

State = Literal["finished", "running", "stopped", "unknown", "damaged"]


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of one run.

    Attributes:
        dir: its directory.
        state: `stopped`: unfinished and without a process; `unknown`: cannot be planned here; `damaged`:
            cannot be read. `note` has the reason.
        owner: the process that plays it.
        doing: the current step of a started run (`step_name`).
        episodes, of: number of finished and of planned episodes.
        faults: episodes that ended by an infrastructure error.
        checkpoint, score: of its last complete evaluation.
        tested: how far unfinished evaluations are, such as `2/20 at 50`.
        quiet_s: seconds since its last request was answered.
        note: why its status is unknown, or what is damaged.
        caveats: notes on the results from the model configs.
    """

    dir: str
    state: State
    owner: str | None = None
    doing: str = ""
    episodes: int = 0
    of: int | None = None
    faults: int = 0
    checkpoint: int | None = None
    score: float | None = None
    tested: list[str] = []
    quiet_s: float | None = None
    note: str = ""
    caveats: list[str] = []


def run_status(path: Path, trust: Collection[str] = ()) -> RunStatus:
    """Return the status of one run."""
    try:
        return _status(path, trust)
    except DAMAGED as error:
        return RunStatus(dir=str(path), state="damaged", note=damage(path, error))


def _status(path: Path, trust: Collection[str]) -> RunStatus:
    run = load(path)
    rows = run.rows  # after a kill one may be missing; `run.episodes` would index all episodes
    tested = Counter(row.checkpoint for row in rows if row.phase == "test")
    planned = run.settings.run.test_episodes
    complete = [point for point, count in tested.items() if count >= planned]
    checkpoint = max(complete, default=None)
    scores = [row.score for row in rows if row.phase == "test" and row.checkpoint == checkpoint]
    known = [score for score in scores if score is not None]
    owner = owner_of(path / "lock")
    ledger = path / "requests.jsonl"
    status = RunStatus(
        dir=str(path),
        state="unknown",
        owner=owner,
        episodes=len(rows),
        faults=sum(row.termination.is_fault for row in rows),
        checkpoint=checkpoint,
        score=fmean(known) if known else None,
        tested=[f"{tested[point]}/{planned} at {point}" for point in sorted(tested) if point not in complete],
        caveats=caveats([run]),
        quiet_s=max(time.time() - ledger.stat().st_mtime, 0.0) if ledger.exists() else None,
    )
    try:
        plan = set_up_stored(run, trust, plays_here=False).plan()
    except SETUP_ERRORS as error:  # something that it names is not on this machine
        return replace(status, state="running" if owner else "unknown", note=str(error))
    left = unfinished_steps(plan, run)
    return replace(
        status,
        state="finished" if not left else "running" if owner else "stopped",
        of=sum(len(step.tasks) for step in plan),
        doing="" if not left else step_name(left[0].step),
    )
