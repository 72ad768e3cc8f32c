"""The history: all training trajectories so far, each tagged with its policy (Algorithm 1)."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from speedrunner.store.files import explained, open_regular
from speedrunner.store.records import Policy, Trajectory
from speedrunner.store.rundir import RunDirectory

_PART = 2**20
"""Bytes that are counted at once."""


class History:
    """What an inducer may read: training trajectories and past policies, never a held-out episode."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    @property
    def folders(self) -> dict[str, Path]:
        """The files behind it, for code that reads them itself: `trajectories` and `policies`."""
        return {name: self._directory.path / name for name in ("trajectories", "policies")}

    def batches(self) -> list[int]:
        """Batches played so far, ascending."""
        return self._directory.batches()

    def batch(self, number: int) -> list[Trajectory]:
        """The trajectories of one batch, in the order in which its tasks were drawn."""
        return sorted(self._directory.trajectories(number), key=lambda each: each.episode)

    def count(self) -> int:
        """How many trajectories there are, none of which is decoded."""
        found = 0
        for file in self.folders["trajectories"].glob("batch_*.jsonl"):
            with explained(file, "read"), os.fdopen(open_regular(file, os.O_RDONLY), "rb") as content:
                found += sum(part.count(b"\n") for part in iter(partial(content.read, _PART), b""))
        return found

    def trajectories(self) -> list[Trajectory]:
        """All trajectories, oldest batch first."""
        return [trajectory for number in self.batches() for trajectory in self.batch(number)]

    def policy(self, version: int) -> Policy:
        """A past policy."""
        return self._directory.policies.load(version)
