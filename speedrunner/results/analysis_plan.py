"""The analysis that sweeps fix when they begin (`analysis.yaml`), and whether a report keeps to it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from speedrunner.config.names import identify_condition
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.plain.plain_yaml import read_yaml, write_yaml
from speedrunner.results.claims import EQUIVALENCE, JudgedClaim, list_claims
from speedrunner.results.inference import CONFIDENCE
from speedrunner.results.means import AVERAGED
from speedrunner.results.run_result import RunResult
from speedrunner.store.files import StorageError, explain_errors, read_content, write_atomic
from speedrunner.store.run_lock import RunLock
from speedrunner.store.stored_run import PLAN

PATIENCE_S = 60.0
"""Seconds to wait for another sweep that adds to the same plan; an addition takes milliseconds."""

NAMED = 5
"""Runs that a line names; it counts the others."""

EXCLUSIONS = (
    "test episodes that an infrastructure error ended",
    "runs with a planned checkpoint that is not finished",
    "seeds that lack a side of a comparison",
)


class AnalysisPlan(msgspec.Struct):
    """The analysis of an experiment.

    Attributes:
        claims: the comparisons of each claim.
        measures: the measures that tables average over seeds.
        exclusions: what is left out of means and comparisons.
        levels: the confidence of intervals, also of those for equivalence.
        runs: by the date at which a sweep added them, the seeds of each environment, method and model.
    """

    claims: dict[str, list[str]]
    measures: list[str]
    exclusions: list[str]
    levels: dict[str, float]
    runs: dict[str, dict[str, list[int]]]


def write_plan(experiment: str, configs: Sequence[Config]) -> None:
    """Add an experiment and those of its runs that are new to the plans in the runs' folders.

    What a plan has is never changed. Sweeps that add to one plan at the same time wait for each other.

    Raises `StorageError` and `InvalidConfig`.
    """
    for folder in dict.fromkeys(Path(each.run.dir).parent for each in configs):
        own = [each for each in configs if Path(each.run.dir).parent == folder]
        runs = [(str(identify_condition(each)), each.run.seed) for each in own]
        if _list_new(_read(folder / PLAN), experiment, runs):
            with explain_errors(folder, "made"):
                folder.mkdir(parents=True, exist_ok=True)
            with RunLock(folder / f"{PLAN}.lock", PATIENCE_S):
                _add(folder, experiment, runs)


def _add(folder: Path, experiment: str, runs: Sequence[tuple[str, int]]) -> None:
    now = _write_date(time.time())
    plans = _read(folder / PLAN)
    if added := _list_new(plans, experiment, runs):
        plan = plans.setdefault(experiment, _analysis(experiment))
        for name, seed in added:
            plan.runs.setdefault(now, {}).setdefault(name, []).append(seed)
        write_atomic(folder / PLAN, write_yaml(msgspec.to_builtins(plans)).encode())


def _list_new(
    plans: Mapping[str, AnalysisPlan], experiment: str, runs: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Return the runs, as condition and seed, that an experiment's plan lacks."""
    planned = _list_runs([plans[experiment]] if experiment in plans else [])
    return [run for run in dict.fromkeys(runs) if run not in planned]


def _analysis(experiment: str) -> AnalysisPlan:
    """Return the analysis of an experiment as it is now; a list of one's own has no claims."""
    name = experiment.removeprefix("experiment=")
    claims = [rows for rows in list_claims() if rows[0].experiment == name]
    comparisons = {rows[0].claim: [row.comparison for row in rows] for rows in claims}
    levels = {"confidence": CONFIDENCE, "equivalence": round(EQUIVALENCE, 6)}
    return AnalysisPlan(comparisons, [*AVERAGED], [*EXCLUSIONS], levels, {})


def _list_runs(plans: Iterable[AnalysisPlan]) -> dict[tuple[str, int], str]:
    """Return condition and seed of each planned run with the date of its first plan, in the order of the
    plans."""
    dates: dict[tuple[str, int], str] = {}
    for date, own in ((date, own) for plan in plans for date, own in plan.runs.items()):
        for run in ((name, seed) for name, seeds in own.items() for seed in seeds):
            dates[run] = min(date, dates.get(run, date))
    return dates


def _write_date(seconds: float) -> str:
    """Return Unix seconds as a date whose text is greater than that of an earlier one."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _read(file: Path) -> dict[str, AnalysisPlan]:
    """Return the plan of each experiment; none if there is no file. Raises `StorageError` and
    `InvalidConfig`."""
    try:
        content = read_yaml(read_content(file).decode()) if file.exists() else {}
        return msgspec.convert(content, dict[str, AnalysisPlan])
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidConfig(
            f"{file} is not a plan as sweeps write it now: restore it, or move it away"
        ) from error


def compare_plans(runs: Iterable[RunResult], judged: Sequence[JudgedClaim], prices: str | None) -> list[str]:
    """Return a line for each planned experiment of the runs' folders: whether the analysis equals its plan.

    Further lines name runs that a plan lacks, and runs that started before a sweep added them.
    A plan that cannot be read is left out with a line, and so are folders without one if claims are judged.

    Args:
        prices: the price list if it is not the runs' own.
    """
    intervals = [each.row for claim in judged for each in claim.rows if each.low is not None]
    by_file: dict[Path, dict[tuple[str, int], str]] = {}
    for run in runs:
        played = by_file.setdefault(Path(run.path).parent / PLAN, {})
        started = _write_date(run.processes[0].started) if run.processes else ""
        played[str(run.condition), run.seed] = started
    lines, without = [], []
    for file, played in by_file.items():
        try:
            plans = _read(file)
        except (StorageError, InvalidConfig) as error:
            lines.append(f"the analysis plan is left out: {error}")
            continue
        if not plans:
            without.append(str(file.parent))
        for experiment, plan in plans.items():
            line = f"{file}: the analysis of {experiment} {_compare(experiment, plan, {*played})}"
            of_usd = prices and any(row.is_usd and row.claim in plan.claims for row in intervals)
            lines.append(line + f"; verdicts on USD are by --prices {prices}" * bool(of_usd))
        planned = _list_runs(plans.values())
        if older := sorted(run for run, started in played.items() if "" < started < planned.get(run, "")):
            lines.append(f"{file} was written after the start of {_name_runs(older)}")
        others = sorted(played.keys() - planned.keys())
        if others and plans:
            lines.append(f"{file} does not plan {_name_runs(others)}")
    if without and intervals:
        reason = "nothing shows that claims and seeds were fixed before the runs"
        lines.append(f"no analysis plan ({PLAN}) in {_join(without)}: {reason}")
    return lines


def _compare(experiment: str, plan: AnalysisPlan, played: Set[tuple[str, int]]) -> str:
    """Return whether an analysis of some runs equals its plan, and what differs."""
    now, keys = _analysis(experiment), ("claims", "measures", "exclusions", "levels")
    unlike = [key for key in keys if getattr(plan, key) != getattr(now, key)]
    missing = [each for each in _list_runs([plan]) if each not in played]
    found = [", ".join(unlike)] * bool(unlike)
    found += [f"this report lacks {_name_runs(missing)}"] * bool(missing)
    whole = f"its plan of {_join([*plan.runs])}"
    return f"differs from {whole}: {'; '.join(found)}" if found else f"equals {whole}"


def _name_runs(runs: Sequence[tuple[str, int]]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) > 1)}: " + _join([f"{name} seed {seed}" for name, seed in runs])


def _join(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
