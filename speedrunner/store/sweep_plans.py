"""Record the sweeps of a folder with their planned runs, and read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from speedrunner.store import files, json_lines
from speedrunner.store.discovery import find_files
from speedrunner.store.records import FORMAT

PLANS = "sweeps.jsonl"
"""The file in the folder of a sweep's runs."""


class PlannedRun(msgspec.Struct, frozen=True):
    """A run planned by a sweep: its directory, and that of the run from which it starts."""

    dir: str
    after: str | None = None


class SweepPlan(msgspec.Struct, frozen=True):
    """The runs of one sweep, and the command that plays the missing ones."""

    command: str
    runs: list[PlannedRun]
    format: int = FORMAT


def note_sweep(root: Path, plan: SweepPlan) -> None:
    """Record a sweep in its folder, which is created if missing. An equal sweep is not recorded twice. Raises
    `StorageError`.
    """
    with files.explain_errors(root, "made"):
        root.mkdir(parents=True, exist_ok=True)
    base, file = root.resolve(), root / PLANS

    def inside(path: Path) -> Path:  # relative, so that the folder can be moved
        whole = path.resolve()
        return whole.relative_to(base) if whole.is_relative_to(base) else whole

    plan = _convert_paths(plan, inside)
    if plan not in json_lines.read_records(file, SweepPlan):
        json_lines.append_record(file, plan, durable=False)


def noted_sweeps(folder: Path) -> list[SweepPlan]:
    """Return the sweeps started in a folder or its subfolders, oldest first. Raises `StorageError`."""
    return [
        _convert_paths(plan, file.parent.joinpath)
        for file in find_files(folder, PLANS)
        for plan in json_lines.read_records(file, SweepPlan)
    ]


def _convert_paths(plan: SweepPlan, place: Callable[[Path], Path]) -> SweepPlan:
    """Return the plan with converted paths."""
    runs = [
        replace(run, dir=str(place(Path(run.dir))), after=run.after and str(place(Path(run.after))))
        for run in plan.runs
    ]
    return replace(plan, runs=runs)
