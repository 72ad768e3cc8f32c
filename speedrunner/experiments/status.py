"""Status of runs, read from their directories; any user can do that at any time."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from speedrunner.results.frames import frame_episodes
from speedrunner.results.means import average_tests
from speedrunner.results.writing import list_rows
from speedrunner.runs.plan import Evaluate, Sleep, Wake, unfinished_steps
from speedrunner.runs.setup import SETUP_ERRORS
from speedrunner.runs.stored_setup import set_up_stored
from speedrunner.store.discovery import DAMAGED, damage, runs_below
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import load
from speedrunner.store.run_lock import owner_of
from speedrunner.store.sweep_plans import SweepPlan, noted_sweeps

State = Literal["finished", "running", "stopped", "waiting", "unknown"]


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of one run.

    Attributes:
        dir: its directory.
        state: `stopped`: started, unfinished and without a process; `waiting`: planned and not started;
            `unknown`: cannot be read or planned, with the reason in `note`.
        owner: the process that plays it.
        doing: the current step of a started run.
        episodes, of: number of finished and of planned episodes.
        faults: episodes that ended by an infrastructure error.
        checkpoint, score: of its last evaluation, the mean of the scores so far.
        quiet_s: seconds since its last request was answered.
        note: why its status is unknown, the run for which it waits, or the broken records that are left out.
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
    quiet_s: float | None = None
    note: str = ""
    caveats: list[str] = []


class SweepStatus(msgspec.Struct, frozen=True):
    """Status of a sweep: its command, and the number of its runs in each state."""

    command: str
    states: dict[str, int]


class Status(msgspec.Struct, frozen=True):
    """Status of everything in a folder."""

    sweeps: list[SweepStatus]
    runs: list[RunStatus]


def status(folder: Path, trust: Collection[str] = ()) -> Status:
    """Return the status of all runs in a folder, started or planned. Runs that a sweep plays elsewhere are
    left out. Raises `StorageError` if the folder does not exist, or a record of its sweeps cannot be read.

    Args:
        trust: names of foreign classes and model configs that the runs may use.
    """
    plans = noted_sweeps(folder)
    runs = [run_status(path, trust) for path in runs_below(folder)]
    known = {Path(run.dir).resolve() for run in runs}
    for planned in (each for plan in plans for each in plan.runs):
        path = Path(planned.dir).resolve()
        if path not in known and path.is_relative_to(folder.resolve()):
            known.add(path)
            note = f"after {Path(planned.after).name}" if planned.after else ""
            runs.append(RunStatus(dir=planned.dir, state="waiting", note=note))
    return Status([_sweep(plan, runs) for plan in plans], runs)


def run_status(path: Path, trust: Collection[str] = ()) -> RunStatus:
    """Return the status of one run."""
    try:
        return _status(path, trust)
    except DAMAGED as error:
        return RunStatus(dir=str(path), state="unknown", note=damage(path, error))


def _status(path: Path, trust: Collection[str]) -> RunStatus:
    run = load(path)
    rows = run.rows  # after a kill one may be missing; `run.episodes` would index all episodes
    points = list_rows(average_tests(frame_episodes(rows)))
    owner = owner_of(path / "lock")
    ledger = path / "requests.jsonl"
    found = RunStatus(
        dir=str(path),
        state="unknown",
        owner=owner,
        episodes=len(rows),
        faults=sum(row.termination.is_fault for row in rows),
        checkpoint=points[-1]["checkpoint"] if points else None,
        score=points[-1]["score"] if points else None,
        caveats=caveats(run.processes),
        quiet_s=max(time.time() - ledger.stat().st_mtime, 0.0) if ledger.exists() else None,
    )
    try:
        plan = set_up_stored(run, trust, plays_here=False).plan()
    except SETUP_ERRORS as error:  # something that it names is not on this machine
        return replace(found, state="running" if owner else "unknown", note=str(error))
    left = unfinished_steps(plan, run, rows=rows)
    return replace(
        found,
        state="finished" if not left else "running" if owner else "stopped",
        of=sum(len(step.tasks) for step in plan),
        doing="" if not left else _name(left[0].step),
    )


def _name(step: Wake | Sleep | Evaluate) -> str:
    match step:
        case Wake():
            return f"rollouts from {step.first} on"
        case Sleep():
            return f"sleep {step.number}"
        case Evaluate():
            return f"evaluation at {step.checkpoint}"


def _sweep(plan: SweepPlan, runs: Sequence[RunStatus]) -> SweepStatus:
    states = {Path(run.dir).resolve(): run.state for run in runs}
    paths = (Path(planned.dir).resolve() for planned in plan.runs)
    own = [states[path] for path in paths if path in states]
    return SweepStatus(plan.command, {state: own.count(state) for state in dict.fromkeys(own)})
