"""Record the sweeps of a folder with their planned runs, and read them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from speedrunner.store import files
from speedrunner.store.discovery import below
from speedrunner.store.records import FORMAT

MOST = 10_000
"""Runs that the sweeps, or the jobs, of a folder and those below it may have."""

PLANS = "sweeps.jsonl"
"""The file in the folder of a sweep's runs."""


class PlannedRun(msgspec.Struct, frozen=True):
    """A run that a sweep is to play: its directory, and that of the one with which it begins."""

    dir: str
    after: str | None = None


class SweepPlan(msgspec.Struct, frozen=True):
    """The runs of one sweep, and the command that plays what is missing of them."""

    command: str
    runs: list[PlannedRun]
    format: int = FORMAT


def note_sweep(root: Path, plan: SweepPlan) -> None:
    """Note a sweep in its folder, which is made; the same one again is not noted. Raises `StorageError`."""
    with files.explained(root, "made"):
        root.mkdir(parents=True, exist_ok=True)
    base, file = root.resolve(), root / PLANS

    def inside(path: Path) -> Path:  # so that the folder can be moved
        whole = path.resolve()
        return whole.relative_to(base) if whole.is_relative_to(base) else whole

    plan = _moved(plan, inside)
    if plan not in files.read_records(file, SweepPlan):
        files.append_record(file, plan, durable=False)


def noted_sweeps(folder: Path) -> list[SweepPlan]:
    """The sweeps that were begun in a folder or one below it, oldest first.

    Raises:
        StorageError: a file of them cannot be read, names what cannot be, or there are more than `MOST` runs.
    """
    found, count = [], 0
    for file in below(folder, PLANS):
        for plan in files.read_records(file, SweepPlan):
            count += len(plan.runs)
            if count > MOST:
                raise files.StorageError(f"{file} names more than {MOST} runs, the limit")
            if any("\0" in text for run in plan.runs for text in (run.dir, run.after or "")):
                raise files.StorageError(f"{file} names a folder that cannot be: remove the file")
            found.append(replace(_moved(plan, file.parent.joinpath), command=_quoted(plan.command)))
    return found


def _quoted(command: str) -> str:
    """A stored command such that the shell takes no word of it for more than a word."""
    with suppress(ValueError):
        words = shlex.split(command)
        if words[:2] == ["speedrunner", "sweep"]:
            return shlex.join(words)
    return "speedrunner sweep ..."


def _moved(plan: SweepPlan, place: Callable[[Path], Path]) -> SweepPlan:
    """The plan with other paths."""
    runs = [
        replace(run, dir=str(place(Path(run.dir))), after=run.after and str(place(Path(run.after))))
        for run in plan.runs
    ]
    return replace(plan, runs=runs)
