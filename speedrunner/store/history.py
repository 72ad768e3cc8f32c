"""The history: all training trajectories so far, each tagged with its policy (Algorithm 1)."""

from __future__ import annotations

from pathlib import Path

from speedrunner.records import Policy, Trajectory
from speedrunner.store.rundir import RunDirectory


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

    def trajectories(self) -> list[Trajectory]:
        """All trajectories, oldest batch first."""
        return [trajectory for number in self.batches() for trajectory in self.batch(number)]

    def policy(self, version: int) -> Policy:
        """A past policy."""
        return self._directory.policies.load(version)
