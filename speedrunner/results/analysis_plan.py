"""The analysis that a sweep fixes when it begins (`analysis.yaml`), and whether a report keeps to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from serving.plain_yaml import write_yaml
from speedrunner.config.schema import InvalidConfig, read_file
from speedrunner.results.measures import AVERAGED
from speedrunner.results.published import list_claims
from speedrunner.results.run_result import RunResult
from speedrunner.store.files import write_atomic

FILE = "analysis.yaml"

KEYS = {"claims", "measures", "exclusions", "seeds"}

EXCLUSIONS = (
    "test episodes that an infrastructure error ended",
    "runs with a planned checkpoint that is not finished",
    "seeds that lack a side of a comparison",
)


def write_plan(folder: Path, experiment: str, seeds: Iterable[int]) -> None:
    """Add the analysis of an experiment to a folder's plan, unless the plan has it. Raises `StorageError`."""
    file = folder / FILE
    plan = _read(file)
    if experiment not in plan:
        folder.mkdir(parents=True, exist_ok=True)
        plan[experiment] = _analysis(experiment) | {"seeds": sorted({*seeds})}
        write_atomic(file, write_yaml(plan).encode())


def _analysis(experiment: str) -> dict[str, Any]:
    """Return the analysis of an experiment as it is now; a list of one's own has no claims."""
    name = experiment.removeprefix("experiment=")
    claims = [rows for rows in list_claims() if rows[0].experiment == name]
    return {
        "claims": {rows[0].claim: [row.comparison for row in rows] for rows in claims},
        "measures": [*AVERAGED],
        "exclusions": [*EXCLUSIONS],
    }


def _read(file: Path) -> dict[str, Any]:
    """Return the plan of each experiment; none if there is no file. Raises `InvalidConfig`."""
    plan = read_file(file) if file.exists() else {}
    if not isinstance(plan, dict) or any(
        not isinstance(own, dict) or {*own} != KEYS for own in plan.values()
    ):
        raise InvalidConfig(f"{file} is not the plan that a sweep writes: restore it, or remove it")
    return plan


def compare_plans(runs: Iterable[RunResult]) -> list[str]:
    """Return a line for each planned experiment of the runs' folders: whether the analysis equals its plan.

    Raises `InvalidConfig` if a plan cannot be read.
    """
    seeds: dict[Path, set[int]] = {}
    for run in runs:
        seeds.setdefault(Path(run.path).parent / FILE, set()).add(run.seed)
    lines = []
    for file, played in seeds.items():
        for experiment, plan in _read(file).items():
            unlike = [key for key, value in _analysis(str(experiment)).items() if plan[key] != value]
            if sorted(played) != plan["seeds"]:
                unlike.append(f"seeds {sorted(played)} instead of {plan['seeds']}")
            verdict = f"differs from its plan in {', '.join(unlike)}" if unlike else "equals its plan"
            lines.append(f"{file}: the analysis of {experiment} {verdict}")
    return lines
