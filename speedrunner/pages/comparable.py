"""Runs, checkpoints and conditions of a folder that can be compared, by their names in addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from speedrunner.results.conditions import Condition, group_runs
from speedrunner.results.pairing import CannotCompare
from speedrunner.results.run_result import RunResult, frame_run
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.run_data import load

CONDITION = "condition-"
"""Begins the name of a condition in addresses."""

Addressed = Callable[[tuple[str, ...]], str]


class Comparable:
    """All readable runs of a folder with the conditions that they form.

    Args:
        found: runs by their names in addresses.
        address: makes a name for addresses from parts.
    """

    def __init__(self, found: Mapping[str, Path], address: Addressed) -> None:
        self.runs: dict[str, RunResult] = {}
        self.problems: list[str] = []
        for slug, path in found.items():
            try:
                self.runs[slug] = frame_run(load(path, skip_broken=True), name=slug)
            except DAMAGED as error:
                self.problems.append(damage(path, error))
        groups, self.notes = group_runs([*self.runs.values()])
        self.conditions: dict[str, Condition] = {}
        for group in groups:
            slug = CONDITION + address(("-".join(group.names),))
            if slug in self.conditions:
                slug = CONDITION + address(group.names)
            self.conditions[slug] = group

    def find(self, name: str) -> tuple[Condition, int | None]:
        """Return the side that `RUN`, `RUN@CHECKPOINT`, `CONDITION` or `CONDITION@CHECKPOINT` names, with
        its checkpoint. Raises `CannotCompare`.
        """
        slug, _, point = name.partition("@")
        if slug in self.runs:
            run = self.runs[slug]
            side = Condition(run.condition_name, {run.seed: run}, slug)
        elif slug in self.conditions:
            side = self.conditions[slug]
        else:
            raise CannotCompare(f"{slug or 'nothing'} is not a run or condition of this folder")
        if point and (not point.isdecimal() or int(point) not in side.points):
            known = ", ".join(map(str, side.points)) or "none"
            raise CannotCompare(f"{slug} has not finished checkpoint {point}: it has {known}")
        return side, int(point) if point else None
