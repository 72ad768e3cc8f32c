"""Find policies of other runs by name: `RUN` or `RUN:VERSION`."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData, load
from speedrunner.store.stored_run import RunDirectoryError


def find_policy(name: str) -> tuple[RunData, int]:
    """Return the run in `RUN[:VERSION]` and the version, by default its newest.

    Raises `RunDirectoryError`: the run or the version does not exist.
    """
    path, colon, wanted = name.rpartition(":")
    if not colon or Path(name).exists():
        path, wanted = name, ""
    elif not wanted.removeprefix("v").isdecimal():
        raise RunDirectoryError(f"{name!r} is not a policy; write RUN or RUN:VERSION, such as runs/demo:2")
    run = load(path)
    there = run.policies.versions()
    if not there:
        raise RunDirectoryError(f"{run.path} has no policy yet")
    version = int(wanted.removeprefix("v")) if wanted else there[-1]
    if version not in there:
        known = f"v{there[0]:04d} to v{there[-1]:04d}"
        raise RunDirectoryError(f"{run.path} has no policy v{version:04d}; it has {known}")
    return run, version


def first_policy(run: RunData, version: int) -> Policy:
    """Return a run's policy as another run's first. Raises `InvalidPolicy`."""
    policy = run.policies.load(version)
    # In the new run they exist from the start; tools are ordered by the sleep of their last edit.
    skills = tuple(replace(skill, created=0, edited=0) for skill in policy.skills)
    return replace(policy, version=0, skills=skills)
