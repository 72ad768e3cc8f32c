"""The training history that a run carries with it from the run that it started from.

    carried/0000/    the oldest earlier run
    carried/0001/    the run that started from it, and so on

Each folder has an earlier run's `config.yaml`, `trajectories`, `policies` and `sleeps`, up to the policy
version that the next run started from. Held-out episodes are not copied, so no learner can read them. The
files are copies: a hard link would change if the earlier run continued, and would break if a run moved to
another disk. They get checksums like every other record of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from speedrunner.store import files, json_lines
from speedrunner.store.folders import record_folder
from speedrunner.store.policies import PolicyStore
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

CARRIED = "carried"
"""Folder of the earlier runs in a run's directory."""

RUNS = 100
"""Maximum number of earlier runs."""

CARRIED_BYTES = 16 * 2**30
"""Maximum bytes of all copies. 1,000 episodes of the longest record (16,000,000 characters) have as many."""


def carried_runs(run: RunData) -> list[RunData]:
    """Return the earlier runs in the history that a run carries, oldest first. Raises `StorageError`."""
    folder = run.path / CARRIED
    if folder.is_symlink():
        raise RunDirectoryError(
            f"{folder} is a link, and links are not followed: put what it names in its place"
        )
    if not folder.is_dir():
        return []
    with files.explain_errors(folder, "read"):
        return [RunData(each) for each in sorted(folder.iterdir()) if each.name.isdecimal()]


def next_start(run: RunData) -> int:
    """Return the policy version of an earlier run that the next run started from."""
    return len(run.policies.versions())


def carried_files(path: Path) -> list[Path]:
    """Return the files of the earlier runs that the run at `path` carries, sorted."""
    return sorted(each for each in (path / CARRIED).rglob("*") if each.is_file())


def copy_history(run: RunData, version: int, target: Path) -> None:
    """Copy what led to a policy version of a run: its training history, and that of its earlier runs.

    Args:
        target: the folder `carried` of the run that starts from this version; missing or empty.

    Raises:
        StorageError: the run cannot be read, the disk refuses the copies, or they would be too large.
    """
    earlier = [(each, next_start(each)) for each in carried_runs(run)]
    phases = [(each, end) for each, end in (*earlier, (run, version)) if end]
    if len(phases) > RUNS:
        raise RunDirectoryError(
            f"{run.path} carries the history of {len(phases) - 1} runs, and {RUNS - 1} are the limit:"
            " set run.carry_history=false"
        )
    copies = _Copies()
    with record_folder(target) as hidden:
        for number, (each, end) in enumerate(phases):
            copies.copy(each, end, hidden / f"{number:04d}")


class _Copies:
    """Copies histories, and counts their bytes."""

    def __init__(self) -> None:
        self._room = CARRIED_BYTES

    def copy(self, run: RunData, version: int, target: Path) -> None:
        """Copy the batches, policies and sleeps before a policy version."""
        for folder in (target, *(target / name for name in ("trajectories", "policies", "sleeps"))):
            files.make_folder(folder)
        self._write(target / "config.yaml", iter([files.read_content(run.files.config)]), run)
        for number in run.batches():
            if number < version:
                source = run.files.numbered("train", number)
                lines = (line + b"\n" for line in json_lines.raw_lines(source))
                self._write(target / source.relative_to(run.path), lines, run)
        for number in run.files.numbers("sleep"):
            if number <= version:
                source = run.files.numbered("sleep", number)
                self._write(target / source.relative_to(run.path), iter([files.read_content(source)]), run)
        for number in run.policies.versions():
            if number < version:
                policy = run.policies.load(number)
                self._count(len(policy.module) + len(policy.notes), run)
                PolicyStore(target / "policies").save(policy)

    def _write(self, target: Path, content: Iterator[bytes], run: RunData) -> None:
        with files.explain_errors(target, "written"), files.open_new(target) as file:
            for piece in content:
                self._count(len(piece), run)
                file.write(piece)

    def _count(self, size: int, run: RunData) -> None:
        self._room -= size
        if self._room < 0:
            raise RunDirectoryError(
                f"the training history of {run.path} has more than {CARRIED_BYTES} bytes, the limit of what a"
                " run carries: set run.carry_history=false"
            )
