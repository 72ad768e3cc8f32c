"""What sweeps were begun in a folder, and the runs that there are: both are needed to say what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from speedrunner.store import files
from speedrunner.store.records import FORMAT

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
    """The sweeps that were begun in a folder or one below it, oldest first. Raises `StorageError`."""
    found = []
    for file in below(folder, PLANS):
        for plan in files.read_records(file, SweepPlan):
            if any("\0" in text for run in plan.runs for text in (run.dir, run.after or "")):
                raise files.StorageError(f"{file} names a folder that cannot be: remove the file")
            found.append(_moved(plan, file.parent.joinpath))
    return found


def _moved(plan: SweepPlan, place: Callable[[Path], Path]) -> SweepPlan:
    """The plan with other paths."""
    runs = [
        replace(run, dir=str(place(Path(run.dir))), after=run.after and str(place(Path(run.after))))
        for run in plan.runs
    ]
    return replace(plan, runs=runs)


def runs_below(folder: Path) -> list[Path]:
    """The directories of runs in a folder and those below it, or the folder itself, by name.

    Raises:
        StorageError: there is no such folder.
    """
    with files.explained(folder, "read"):
        os.scandir(folder).close()
    return [file.parent for file in below(folder, "config.yaml")]


def below(folder: Path, name: str) -> Iterator[Path]:
    """Files of a name; what is in a run's directory is its own affair, and links are not followed."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        if name in names:
            yield Path(place, name)
        if "config.yaml" in names:
            folders.clear()
