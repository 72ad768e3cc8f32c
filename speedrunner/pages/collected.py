"""Collect all runs below some folders for `speedrunner report`: tables, headline numbers and facts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from speedrunner.config.console import Status
from speedrunner.config.schema import RunConfig
from speedrunner.pages.tiles import Form, Tile, make_tile, show_value
from speedrunner.results.claims import Judged, claim_tables, count_verdicts, judge_claims, list_claims
from speedrunner.results.conditions import OURS, Condition, group_runs
from speedrunner.results.paper import PaperComparison, compare_with_paper, list_published, paper_tables
from speedrunner.results.pricing import price_list
from speedrunner.results.run_result import RunResult, count_terminations, read_results
from speedrunner.results.tables import make_tables
from speedrunner.results.writing import Table
from speedrunner.store.discovery import runs_below
from speedrunner.store.files import StorageError
from speedrunner.store.records import Process
from speedrunner.store.sweep_plans import noted_sweeps

HEADLINES: tuple[tuple[str, str, Form], ...] = (
    ("Score", "score", "score"),
    ("Output tokens", "output", "tokens"),
    ("USD per episode", "cost_usd", "usd"),
)
"""Name, column and form of the headline numbers; the share of cached prompt tokens follows."""


@dataclass(frozen=True)
class Collected:
    """The content of some folders.

    Attributes:
        runs: in the order of their folders.
        conditions: the same runs, grouped.
        beside: the paper's numbers and the measured ones.
        judged: the paper's claims with their verdicts.
        tables: all tables.
        notes: runs that are left out because another one has their condition and seed.
        caveats: notes on the results from the model configs.
        problems: runs and files that could not be read, a line each.
    """

    runs: list[RunResult]
    conditions: list[Condition]
    beside: list[PaperComparison]
    judged: list[Judged]
    tables: list[Table]
    notes: list[str]
    caveats: list[str]
    problems: list[str]


def collect(folders: Sequence[Path], prices: str | None, status: Status, *, corrected: bool) -> Collected:
    """Read all runs below some folders, and create the tables.

    Args:
        prices: a file of `configs/prices/`; `None`: each run's own list.
        status: shows which run is being read.
        corrected: whether p-values are corrected by Holm's procedure.

    Raises:
        InvalidConfig: the price list does not exist.
        StorageError: no run can be read.
    """
    if prices is not None:
        price_list(prices)
    runs, problems = _read(folders, prices, status)
    if not runs:
        raise StorageError("; ".join(problems))
    conditions, notes = group_runs(runs)
    names = ", ".join(dict.fromkeys(run.prices for run in runs))
    options = _options(folders, runs)
    rows = compare_with_paper(list_published(), conditions, options)
    status("judging the paper's claims")
    judged = judge_claims(list_claims(), conditions, options)
    made = [
        *make_tables(conditions, prices=names, corrected=corrected),
        *claim_tables(judged),
        *paper_tables(rows),
    ]
    caveats = sorted({caveat for run in runs for caveat in run.caveats})
    return Collected(
        runs=runs,
        conditions=conditions,
        beside=rows,
        judged=judged,
        tables=made,
        notes=notes,
        caveats=caveats,
        problems=problems,
    )


def _options(folders: Sequence[Path], runs: list[RunResult]) -> str:
    """Return scale and folder of the newest sweep in the folders, as in its command; without a scale, the
    sizes that differ from the paper's in all runs, except those that only evaluate a stored policy."""
    words: list[str] = []
    for folder in folders:
        with suppress(StorageError, ValueError):
            for plan in noted_sweeps(folder):
                words = [each for each in shlex.split(plan.command) if each.startswith(("scale=", "--dir="))]
    if not any(each.startswith("scale=") for each in words):
        usual = {field.name: field.default for field in msgspec.structs.fields(RunConfig)}
        configs = [run.config.run for run in runs if run.config.run.rollouts or not run.config.run.start_from]
        for name in ("rollouts", "sleep_every", "eval_every", "test_episodes"):
            sizes = {getattr(config, name) for config in configs}
            if len(sizes) == 1 and sizes != {usual[name]}:
                words.append(f"run.{name}={sizes.pop()}")
    return "".join(f" {shlex.quote(each)}" for each in words)


def _read(folders: Sequence[Path], prices: str | None, status: Status) -> tuple[list[RunResult], list[str]]:
    """Return all readable runs, each once, and the problems of the others."""
    found: dict[Path, Path] = {}
    problems = []
    for folder in folders:
        try:
            here = runs_below(folder)
        except StorageError as error:
            problems.append(str(error))
            continue
        if not here:
            problems.append(f"{folder} contains no runs: no folder in it has a config.yaml")
        found |= {path.resolve(): path for path in here}
    runs = []
    status(f"reading {len(found)} runs")
    for number, result in enumerate(read_results(list(found.values()), prices), start=1):
        status(f"{number} of {len(found)} runs read")
        if isinstance(result, str):
            problems.append(result)
        else:
            runs.append(result)
    return runs, problems


def describe(found: Collected) -> list[str]:
    """Return lines about the runs, and about missing ones."""
    rows = found.beside
    lines = [f"{len(found.runs)} runs of {len(found.conditions)} conditions"]
    for run in found.runs:
        if run.unfinished:
            points = ", ".join(map(str, run.unfinished))
            lines.append(f"{run.path} is not finished: no complete evaluation after {points} rollouts")
        if unscored := int(run.checkpoints["unscored"].sum()):
            lines.append(
                f"{run.path}: {unscored} test episodes ended by an infrastructure error and are"
                " excluded from means"
            )
    lines.append(f"claims of the paper: {count_verdicts(found.judged)} (tables/claims.csv)")
    if flagged := {(row.model, row.paper.env, row.paper.method) for row in rows if row.flag}:
        lines.append(
            f"{len(flagged)} cells are flagged: the wall clock or the context ended over 2% of their test"
            " episodes"
        )
    missing: dict[str, int] = {}
    for row in rows:
        if row.missing:
            command = row.missing.rpartition(": ")[2]
            missing[command] = missing.get(command, 0) + 1
    if missing:
        lines.append(
            f"{sum(missing.values())} of {len(rows)} cells of the paper's tables are missing or incomplete:"
        )
        lines += [f"  {count:4}  {command}" for command, count in missing.items()]
    return lines


class ConditionSummary(msgspec.Struct, frozen=True):
    """The headline numbers of one condition.

    Attributes:
        points: finished checkpoints, in training rollouts.
        last_score: mean over seeds at the last checkpoint.
        tiles: `HEADLINES`, and the share of prompt tokens that the engine had cached.
    """

    env: str
    method: str
    model: str
    seeds: int
    points: list[int]
    last_score: float
    tiles: list[Tile]

    @property
    def title(self) -> str:
        """Return its names and seeds."""
        seeds = f"{self.seeds} seed{'s' if self.seeds != 1 else ''}"
        return f"{self.method} on {self.env}, {self.model}, {seeds}"


def count_contents(conditions: Sequence[Condition]) -> dict[str, str]:
    """Return the numbers and names of all runs, by what they count."""
    runs = [run for condition in conditions for run in condition.runs.values()]
    columns = [*zip(*(condition.names for condition in conditions), strict=True)] or [(), (), ()]
    counts = {
        "Runs": f"{len(runs):,}",
        "Conditions": f"{len(conditions):,}",
        "Episodes": f"{sum(len(run.episodes) for run in runs):,}",
        **{
            word: ", ".join(dict.fromkeys(names))
            for word, names in zip(("Environments", "Methods", "Models"), columns, strict=True)
        },
        "Seeds": ", ".join(map(str, sorted({run.seed for run in runs}))),
    }
    if starts := [run.started for run in runs if run.started is not None]:
        dates = (f"{datetime.fromtimestamp(start):%Y-%m-%d}" for start in (min(starts), max(starts)))
        counts["Started"] = " to ".join(dict.fromkeys(dates))
    counts["Terminations"] = show_terminations(count_terminations(runs))
    return counts


def show_terminations(counts: Mapping[str, int]) -> str:
    """Return numbers of episodes by termination as text."""
    texts = [f"{termination.replace('_', ' ')} {count:,}" for termination, count in counts.items()]
    return ", ".join(texts) or "none yet"


def summarize(conditions: Sequence[Condition]) -> list[ConditionSummary]:
    """Return the headline numbers of conditions with a finished checkpoint. Sparklines of one environment
    share a scale."""
    found = [(condition, _list_headlines(condition)) for condition in conditions if condition.points]
    tops: dict[tuple[str, str], float] = {}
    for condition, headlines in found:
        for label, _, points, _ in headlines:
            key = condition.condition_name.env, label
            tops[key] = max([tops.get(key, 0), *(value for _, value in points)])
    summaries = []
    for condition, headlines in found:
        env, method, model = condition.names
        tiles = [
            make_tile(label, points, form, note, tops[env, label]) for label, form, points, note in headlines
        ]
        scores = condition.spread("score")
        last = scores[max(scores)].mean if scores else 0.0
        summaries.append(
            ConditionSummary(env, method, model, len(condition.runs), condition.points, last, tiles)
        )
    return summaries


def choose_leading(summaries: Sequence[ConditionSummary]) -> list[ConditionSummary]:
    """Return one condition of each environment: SpeedRunner's if it was played, otherwise that with the
    highest last score."""
    leading = {
        summary.env: summary
        for summary in sorted(summaries, key=lambda each: (each.method == OURS, each.last_score))
    }
    return [leading[env] for env in sorted(leading)]


def _list_headlines(condition: Condition) -> list[tuple[str, Form, list[tuple[int, float]], str]]:
    """Return name, form, means over seeds by training rollouts, and a note on the last one."""
    found: list[tuple[str, Form, list[tuple[int, float]], str]] = []
    for label, column, form in HEADLINES:
        spread = condition.spread(column)
        if form == "usd" and not any(value.mean for value in spread.values()):
            spread = {}  # no price is known
        last = spread[max(spread)] if spread else None
        note = "" if last is None or last.sd is None else f"± {show_value(last.sd, form)} over seeds"
        found.append((label, form, [(x, value.mean) for x, value in spread.items()], note))
    cached, uncached = condition.spread("cached"), condition.spread("uncached")
    shares = [(x, cached[x].mean / total) for x in cached if (total := cached[x].mean + uncached[x].mean)]
    return [*found, ("Prompt cached", "share", shares, "")]


def list_shared_facts(runs: Sequence[RunResult]) -> dict[tuple[str, str], list[str]]:
    """Return the runs that have each machine, sandbox and set of versions, by its kind and value."""
    shared: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        facts = {fact: None for process in run.processes for fact in _list_facts(process)}
        for fact in facts:
            shared.setdefault(fact, []).append(run.path)
    return dict(sorted(shared.items()))


def _list_facts(process: Process) -> list[tuple[str, str]]:
    machine = process.machine
    gpus = [f"{count} x {name}" for name, count in Counter(machine.gpus).items()]
    hardware = "; ".join([f"{machine.cpu}, {machine.cores} cores, {machine.memory_gb:.0f} GB", *gpus])
    versions = ", ".join(f"{name} {version}" for name, version in process.versions.items())
    return [
        ("Hardware", f"{process.host}: {hardware}"),
        ("Sandbox", process.sandbox),
        ("Versions", versions),
    ]
