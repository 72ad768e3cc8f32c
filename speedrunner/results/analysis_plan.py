"""The analysis that a sweep fixes when it begins (`analysis.yaml`), and whether a report keeps to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from serving.plain_yaml import write_yaml
from speedrunner.config.schema import InvalidConfig, read_file
from speedrunner.results.measures import AVERAGED
from speedrunner.results.published import list_claims
from speedrunner.results.run_result import RunResult
from speedrunner.store.files import write_atomic

FILE = "analysis.yaml"

EXCLUSIONS = (
    "test episodes that an infrastructure error ended",
    "runs with a planned checkpoint that is not finished",
    "seeds that lack a side of a comparison",
)


class Plan(msgspec.Struct, forbid_unknown_fields=True):
    """The analysis of an experiment.

    Attributes:
        claims: the comparisons of each claim.
        measures: the measures that tables average over seeds.
        exclusions: what is left out of means and comparisons.
        seeds: those that the sweep plays.
    """

    claims: dict[str, list[str]]
    measures: list[str]
    exclusions: list[str]
    seeds: list[int]


def write_plan(folder: Path, experiment: str, seeds: Iterable[int]) -> None:
    """Add the analysis of an experiment to a folder's plan, unless the plan has it. Raises `StorageError`."""
    file = folder / FILE
    plans = _read(file)
    if experiment not in plans:
        folder.mkdir(parents=True, exist_ok=True)
        plans[experiment] = _analysis(experiment, seeds)
        write_atomic(file, write_yaml(msgspec.to_builtins(plans)).encode())


def _analysis(experiment: str, seeds: Iterable[int]) -> Plan:
    """Return the analysis of an experiment as it is now; a list of one's own has no claims."""
    name = experiment.removeprefix("experiment=")
    claims = [rows for rows in list_claims() if rows[0].experiment == name]
    comparisons = {rows[0].claim: [row.comparison for row in rows] for rows in claims}
    return Plan(comparisons, [*AVERAGED], [*EXCLUSIONS], sorted({*seeds}))


def _read(file: Path) -> dict[str, Plan]:
    """Return the plan of each experiment; none if there is no file. Raises `InvalidConfig`."""
    try:
        return msgspec.convert(read_file(file) if file.exists() else {}, dict[str, Plan])
    except msgspec.ValidationError as error:
        raise InvalidConfig(
            f"{file} is not the plan that a sweep writes: restore it, or remove it"
        ) from error


def compare_plans(runs: Iterable[RunResult]) -> list[str]:
    """Return a line for each planned experiment of the runs' folders: whether the analysis equals its plan.

    Raises `InvalidConfig` if a plan cannot be read.
    """
    seeds: dict[Path, set[int]] = {}
    for run in runs:
        seeds.setdefault(Path(run.path).parent / FILE, set()).add(run.seed)
    lines = []
    for file, played in seeds.items():
        plans = _read(file)
        planned = {seed for plan in plans.values() for seed in plan.seeds}
        for experiment, plan in plans.items():
            now = _analysis(experiment, plan.seeds)
            unlike = [
                key for key in ("claims", "measures", "exclusions") if getattr(plan, key) != getattr(now, key)
            ]
            if played - planned or {*plan.seeds} - played:  # other experiments may have other seeds
                unlike.append(f"seeds {sorted(played)} instead of {plan.seeds}")
            verdict = f"differs from its plan in {', '.join(unlike)}" if unlike else "equals its plan"
            lines.append(f"{file}: the analysis of {experiment} {verdict}")
    return lines
