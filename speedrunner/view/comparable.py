"""Runs, checkpoints and conditions of a folder that can be compared, by their names in addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from speedrunner.config.names import ConditionName
from speedrunner.results.comparison import CannotCompare
from speedrunner.results.conditions import group_by_condition
from speedrunner.results.paired import EvaluatedRun, Side
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
        self.runs: dict[str, EvaluatedRun] = {}
        self.problems: list[str] = []
        for slug, path in found.items():
            try:
                run = EvaluatedRun(slug, load(path, skip_broken=True))
                _ = run.condition_name, run.tests
                self.runs[slug] = run
            except DAMAGED as error:
                self.problems.append(damage(path, error))
        groups, self.notes = group_by_condition([*self.runs.values()])
        self.conditions: dict[str, tuple[ConditionName, Side]] = {}
        for name, seeds in groups.items():
            parts = name.env, name.method, name.model
            slug = CONDITION + address(("-".join(parts),))
            if slug in self.conditions:
                slug = CONDITION + address(parts)
            self.conditions[slug] = name, Side(f"{name.method}, {name.model}", seeds)

    def find(self, name: str) -> tuple[Side, int | None]:
        """Return the side that `RUN`, `RUN@CHECKPOINT`, `CONDITION` or `CONDITION@CHECKPOINT` names, with
        its checkpoint. Raises `CannotCompare`.
        """
        slug, _, point = name.partition("@")
        if slug in self.runs:
            run = self.runs[slug]
            side = Side(slug, {run.seed: run})
        elif slug in self.conditions:
            _, side = self.conditions[slug]
        else:
            raise CannotCompare(f"{slug or 'nothing'} is not a run or condition of this folder")
        if point and (not point.isdecimal() or int(point) not in side.checkpoints):
            known = ", ".join(map(str, side.checkpoints)) or "none"
            raise CannotCompare(f"{slug} has not finished checkpoint {point}: it has {known}")
        return side, int(point) if point else None
