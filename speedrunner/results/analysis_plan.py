"""The analysis that sweeps fix when they begin (`analysis.yaml`), and whether a report keeps to it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from speedrunner.config.names import identify_condition
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.plain.console import count_of
from speedrunner.plain.plain_yaml import read_yaml, write_yaml
from speedrunner.results.claims import EQUIVALENCE, JudgedClaim, list_claims
from speedrunner.results.inference import CONFIDENCE
from speedrunner.results.run_result import RunResult
from speedrunner.store.files import StorageError, explain_errors, read_content, write_atomic
from speedrunner.store.run_lock import RunLock
from speedrunner.store.stored_run import PLAN

PATIENCE_S = 60.0
"""Seconds to wait for another sweep that adds to the same plan; an addition takes milliseconds."""

PlannedSeed = tuple[str, int]
"""A run of a plan: the name of its condition, and its seed."""


class AnalysisPlan(msgspec.Struct):
    """The analysis of an experiment.

    Attributes:
        claims: the comparisons of each claim.
        levels: the confidence of intervals, also of those for equivalence.
        runs: by the date at which a sweep added them, the seeds of each environment, method and model.
    """

    claims: dict[str, list[str]]
    levels: dict[str, float]
    runs: dict[str, dict[str, list[int]]]


def write_plan(experiment: str, configs: Sequence[Config]) -> None:
    """Add an experiment and those of its runs that are new to the plans in the runs' folders.

    What a plan has is never changed. Sweeps that add to one plan at the same time wait for each other.

    Raises `StorageError` and `InvalidConfig`.
    """
    for folder in dict.fromkeys(Path(config.run.dir).parent for config in configs):
        own = [config for config in configs if Path(config.run.dir).parent == folder]
        with explain_errors(folder, "made"):
            folder.mkdir(parents=True, exist_ok=True)
        with RunLock(folder / f"{PLAN}.lock", PATIENCE_S):
            plans, now = _read(folder / PLAN), _write_date(time.time())
            plan = plans.setdefault(experiment, _analysis(experiment))
            planned = _list_runs([plan])
            for run in dict.fromkeys((str(identify_condition(config)), config.run.seed) for config in own):
                if run not in planned:
                    plan.runs.setdefault(now, {}).setdefault(run[0], []).append(run[1])
            write_atomic(folder / PLAN, write_yaml(msgspec.to_builtins(plans)).encode())


def _analysis(experiment: str) -> AnalysisPlan:
    """Return the analysis of an experiment as it is now; a list of one's own has no claims."""
    name = experiment.removeprefix("experiment=")
    claims = [rows for rows in list_claims() if rows[0].experiment == name]
    comparisons = {rows[0].claim: [row.comparison for row in rows] for rows in claims}
    return AnalysisPlan(comparisons, {"confidence": CONFIDENCE, "equivalence": round(EQUIVALENCE, 6)}, {})


def _list_runs(plans: Iterable[AnalysisPlan]) -> dict[PlannedSeed, str]:
    """Return the planned runs with the dates of their first plans, in the order of the plans."""
    dates: dict[PlannedSeed, str] = {}
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


def list_experiments(runs: Iterable[RunResult]) -> list[str]:
    """Return the names of the experiments that have planned runs in the folders of these runs."""
    names: dict[str, None] = {}
    for folder in dict.fromkeys(Path(run.path).parent for run in runs):
        with suppress(StorageError, InvalidConfig):  # `compare_plans` says so
            names |= dict.fromkeys(Path(name).stem for name in _read(folder / PLAN))
    return list(names)


def compare_plans(runs: Iterable[RunResult], judged: Sequence[JudgedClaim], prices: str | None) -> list[str]:
    """Return a line for each planned experiment of the runs' folders: whether the analysis equals its plan.

    Further lines name runs that a plan lacks, runs that started before a sweep added them, and runs that a
    sweep added after others had started. A plan that cannot be read is left out with a line, and so are
    folders without one if claims are judged.

    Args:
        prices: the price list if it is not the runs' own.
    """
    intervals = [row.row for claim in judged for row in claim.rows if row.low is not None]
    by_file: dict[Path, dict[PlannedSeed, str]] = {}
    for run in runs:
        played = by_file.setdefault(Path(run.path).parent / PLAN, {})
        played[str(run.condition), run.seed] = _write_date(run.started) if run.started is not None else ""
    lines = []
    for file, played in by_file.items():
        try:
            plans = _read(file)
        except (StorageError, InvalidConfig) as error:
            lines.append(f"the analysis plan is left out: {error}")
            continue
        if not plans and intervals:
            reason = "nothing shows that claims and seeds were fixed before the runs"
            lines.append(f"no analysis plan ({PLAN}) in {file.parent}: {reason}")
        for experiment, plan in plans.items():
            line = f"{file}: the analysis of {experiment} {_compare(experiment, plan, played)}"
            of_usd = prices and any(row.is_usd and row.claim in plan.claims for row in intervals)
            lines.append(line + f"; verdicts on USD are by --prices {prices}" * bool(of_usd))
        planned = _list_runs(plans.values())
        if older := [run for run, started in played.items() if "" < started < planned.get(run, "")]:
            lines.append(f"{file} was written after the start of {_name_runs(older)}")
        if plans and (others := played.keys() - planned.keys()):
            lines.append(f"{file} does not plan {_name_runs(others)}")
    return lines


def _compare(experiment: str, plan: AnalysisPlan, played: Mapping[PlannedSeed, str]) -> str:
    """Return whether an analysis of some runs equals its plan, and what differs.

    Args:
        played: the dates at which the runs started; empty: not yet.
    """
    now, planned = _analysis(experiment), _list_runs([plan])
    found = [key for key in ("claims", "levels") if getattr(plan, key) != getattr(now, key)]
    missing = [run for run in planned if run not in played]
    found += [f"this report lacks {_name_runs(missing)}"] * bool(missing)
    text = f"differs from its plan: {', '.join(found)}" if found else "equals its plan"
    first = min((played[run] for run in planned if played.get(run)), default="")
    if added := [run for run, date in planned.items() if "" < first < date]:
        text += f"; {_name_runs(added)} were added after others had started, and verdicts err more often if"
        text += " results of those led to it"
    return text


def _name_runs(runs: Iterable[PlannedSeed]) -> str:
    by_name: dict[str, list[int]] = {}
    for name, seed in sorted(runs):
        by_name.setdefault(name, []).append(seed)
    texts = [f"{name} seed {', '.join(map(str, seeds))}" for name, seeds in by_name.items()]
    return f"{count_of(sum(map(len, by_name.values())), 'run')}: {'; '.join(texts)}"
