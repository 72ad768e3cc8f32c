"""The training history that a run carries with it from the run that it started from.

    carried/0000/    the oldest earlier run
    carried/0001/    the run that started from it, and so on

Each folder has an earlier run's `config.yaml`, `trajectories`, `policies` and `sleeps`, up to the policy
version that the next run started from. Held-out episodes are not copied, so no learner can read them. The
files are copies: a hard link would change if the earlier run continued, and would break if a run moved to
another disk.
"""

from __future__ import annotations

from pathlib import Path

from speedrunner.store import files
from speedrunner.store.folders import whole_folder
from speedrunner.store.run_data import RunData

CARRIED = "carried"
"""Folder of the earlier runs in a run's directory."""


def carried_runs(run: RunData) -> list[RunData]:
    """Return the earlier runs in the history that a run carries, oldest first. Raises `StorageError`, also
    for a link, which may lead out of the run."""
    folder = run.path / CARRIED
    if any(each.is_symlink() for each in (folder, *folder.glob("*"), *folder.glob("*/*"))):
        raise files.StorageError(f"{folder} has links: replace them with their targets")
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

    Raises `StorageError`: the run cannot be read, or the disk refuses the copies.
    """
    earlier = [(each, next_start(each)) for each in carried_runs(run)]
    parts = [(each, end) for each, end in (*earlier, (run, version)) if end]
    with whole_folder(target) as hidden:
        for number, (each, end) in enumerate(parts):
            _copy(each, end, hidden / f"{number:04d}")


def copy_policy(run: RunData, version: int, target: Path) -> None:
    """Copy the folder of a policy version. Raises `StorageError`, also for a link."""
    files.make_folder(target)
    for source in sorted((run.policies.folder / f"v{version:04d}").iterdir()):
        files.copy(source, target / source.name)


def _copy(run: RunData, version: int, target: Path) -> None:
    """Copy the configuration, and the batches, policies and sleeps before a policy version, as they are."""
    for folder in (target, *(target / name for name in ("trajectories", "policies", "sleeps"))):
        files.make_folder(folder)
    batches = [run.files.numbered("train", each) for each in run.batches() if each < version]
    sleeps = [run.files.numbered("sleep", each) for each in run.files.numbers("sleep") if each <= version]
    for source in (run.files.config, *batches, *sleeps):
        files.copy(source, target / source.relative_to(run.path))
    for number in (each for each in run.policies.versions() if each < version):
        copy_policy(run, number, target / f"policies/v{number:04d}")
