"""The report: all runs below some folders with tables and facts, as one HTML file that loads nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup

from speedrunner.pages.html_parts import (
    count_decimals,
    count_terminations,
    html_table,
    render,
    show_cell,
    show_number,
)
from speedrunner.pages.plots import ReportFigure, show_svg
from speedrunner.plain.console import Status, count_of
from speedrunner.results.analysis_plan import compare_plans
from speedrunner.results.break_even import break_even
from speedrunner.results.claims import (
    CLAIMS,
    JudgedClaim,
    claim_tables,
    count_verdicts,
    judge_claims,
    list_claims,
    note_left_out,
)
from speedrunner.results.conditions import OURS, REACT, Condition, group_runs
from speedrunner.results.means import Spread
from speedrunner.results.pairing import estimate_difference, pair_runs
from speedrunner.results.paper import list_published, paper_tables
from speedrunner.results.pricing import price_caveats, price_list
from speedrunner.results.run_result import RunResult, note_silent_sleeps, read_or_describe
from speedrunner.results.tables import make_tables
from speedrunner.results.unseen import unseen_table
from speedrunner.results.writing import Table, caption
from speedrunner.store.discovery import runs_below
from speedrunner.store.files import StorageError
from speedrunner.store.process_notes import process_lines

HEADLINES = {
    **{"score": "score", "output tokens": "output"},
    **{"USD per episode": "cost_usd", "USD, cold cache": "cost_usd_cold"},
    **{"USD, provider's cache": "cost_usd_provider", "prompt cached": "cached_share"},
}
"""Columns of the checkpoints by their headings in the table of conditions."""


@dataclass(frozen=True)
class Collected:
    """The content of some folders.

    Attributes:
        runs: in the order of their folders.
        conditions: the same runs, grouped.
        overview: columns and rows of `list_conditions`.
        judged: the paper's claims with their verdicts.
        tables: all tables.
        notes: runs that are left out because another one has their condition and seed, other limits, what
            does not count for claims, Crafter's worlds, and whether the analysis equals its plan.
        caveats: notes on the results from the model configs, measured prices and silent sleeps.
        problems: runs and files that could not be read, a line each.
    """

    runs: list[RunResult]
    conditions: list[Condition]
    overview: tuple[list[str], list[list[Any]]]
    judged: list[JudgedClaim]
    tables: list[Table]
    notes: list[str]
    caveats: list[str]
    problems: list[str]


def collect(folders: Sequence[Path], prices: str | None, status: Status) -> Collected:
    """Read all runs below some folders, and create the tables.

    Args:
        prices: a file of `configs/prices/`; `None`: each run's own list.
        status: shows which run is being read.

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
    names = ", ".join(dict.fromkeys(run.book.title for run in runs))
    folder = shlex.quote(f"--dir={Path(runs[0].path).parent}")
    status("judging the paper's claims")
    judged = judge_claims(list_claims(), conditions)
    made = [
        *make_tables(conditions, names),
        unseen_table(conditions),
        *claim_tables(judged),
        *paper_tables(list_published(), conditions, f" {folder}"),
    ]
    overview = list_conditions(conditions)
    caveats = {line for run in runs for line in (*run.caveats, *price_caveats(run.book, run.processes))}
    caveats |= {f"{run.path}: {line}" for run in runs for line in note_silent_sleeps(run.sleeps)}
    return Collected(
        runs=runs,
        conditions=conditions,
        overview=overview,
        judged=judged,
        tables=made,
        notes=[
            *notes,
            *note_left_out(conditions),
            *[caption("crafter")] * any(run.condition.env.name == "crafter" for run in runs),
            *compare_plans(runs, judged, prices),
        ],
        caveats=sorted(caveats),
        problems=problems,
    )


def _read(folders: Sequence[Path], prices: str | None, status: Status) -> tuple[list[RunResult], list[str]]:
    """Return all readable runs, each once, and the problems of the others."""
    paths: dict[Path, Path] = {}
    problems = []
    for folder in folders:
        try:
            below = runs_below(folder)
        except StorageError as error:
            problems.append(str(error))
            continue
        if not below:
            problems.append(f"{folder} contains no runs: no folder in it has a config.yaml")
        paths |= {path.resolve(): path for path in below}
    runs = []
    status(f"reading {len(paths)} runs")
    for number, path in enumerate(paths.values(), start=1):
        result = read_or_describe(path, prices)
        status(f"{number} of {len(paths)} runs read")
        if isinstance(result, str):
            problems.append(result)
        else:
            runs.append(result)
    return runs, problems


def describe(collected: Collected) -> list[str]:
    """Return lines about the runs: their number, unfinished ones and claims."""
    runs, conditions = len(collected.runs), len(collected.conditions)
    lines = [f"{count_of(runs, 'run')} of {count_of(conditions, 'condition')}"]
    if unfinished := [run.path for run in collected.runs if run.unfinished]:
        count = count_of(len(unfinished), "run")
        lines.append(f"{count} without a planned evaluation: {', '.join(unfinished)}")
    lines.append(f"claims of the paper: {count_verdicts(collected.judged)} (tables/claims.csv)")
    return lines


def summarize(conditions: Sequence[Condition]) -> list[str]:
    """Return a sentence for each environment and model: what SpeedRunner, or else the first other method,
    changes compared with ReAct at their last common checkpoint. Without ReAct there is none."""
    lines = []
    for react in (each for each in conditions if each.identity.treatment == REACT):
        others = [each for each in conditions if each != react and each.names[::2] == react.names[::2]]
        others.sort(key=lambda each: each.identity.treatment != OURS)
        common = [point for other in others[:1] for point in other.points if pair_runs(react, other, point)]
        if not common:
            continue
        before, after = (side.estimate(common[-1], "output") for side in (react, others[0]))
        change = estimate_difference(react, others[0], common[-1], "score")
        if before is None or after is None or change is None or not before.mean:
            continue
        share = after.mean / before.mean - 1
        around = "" if change.ends is None else " [{:+.2f} to {:+.2f}]".format(*change.ends)
        env, method, model = others[0].names
        tokens = f"{abs(share):.0%} {'fewer' if share < 0 else 'more'} output tokens than ReAct"
        repaid = show_break_even(others[0]) or ""
        end = f", break-even after {repaid} test episodes" if repaid[:1].isdigit() else ""
        lines.append(f"{env}, {model}: {method} takes {tokens}, score {change.mean:+.2f}{around}{end}")
    return lines


def count_contents(conditions: Sequence[Condition]) -> dict[str, str]:
    """Return the numbers of runs, conditions and episodes, their dates and terminations, by name."""
    runs = [run for condition in conditions for run in condition.runs.values()]
    episodes = sum(len(run.episodes) for run in runs)
    counts = {"Runs": f"{len(runs):,}", "Conditions": f"{len(conditions):,}", "Episodes": f"{episodes:,}"}
    if starts := [run.started for run in runs if run.started is not None]:
        dates = (f"{datetime.fromtimestamp(start):%Y-%m-%d}" for start in (min(starts), max(starts)))
        counts["Started"] = " to ".join(dict.fromkeys(dates))
    counts["Terminations"] = count_terminations(each for run in runs for each in run.episodes["termination"])
    return counts


def list_conditions(conditions: Sequence[Condition]) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows with the headline numbers of all conditions at their last checkpoint: means
    with their deviations over the seeds that have finished it. A column without a value is left out, such as
    USD without prices."""
    columns = ["environment", "method", *HEADLINES, "break-even", "model", "seeds", "rollouts"]
    rows: list[list[Any]] = []
    for condition in conditions:
        last = condition.points[-1] if condition.points else -1
        spreads = {name: condition.spread(column).get(last) for name, column in HEADLINES.items()}
        shown = (_show_spread(spread, name) for name, spread in spreads.items())
        finished = sum(last in run.points for run in condition.runs.values())
        env, method, model = condition.names
        counts = finished, None if last < 0 else last
        rows.append([env, method, *shown, show_break_even(condition), model, *counts])
    kept = [place for place in range(len(columns)) if any(row[place] is not None for row in rows)]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]


def show_break_even(condition: Condition) -> str | None:
    """Return after how many test episodes a condition's sleeps are repaid; `None` without sleeps."""
    found = break_even(run.checkpoints for run in condition.runs.values())
    return None if found is None else str(found)


def _show_spread(spread: Spread | None, name: str) -> str | None:
    """Return a mean with its deviation; `None` if it is unknown, or no price is."""
    if spread is None or ("USD" in name and not spread.mean):
        return None
    if HEADLINES[name] == "cached_share":
        return f"{spread.mean:.0%}"
    decimals = count_decimals([spread.mean], name)
    deviation = "" if spread.sd is None else f" ± {spread.sd:,.{decimals}f}"
    return show_number(spread.mean, name) + deviation


ROWS = 200
"""Maximum rows of a table on the page; the files in tables/ have all."""

VERDICTS = {"supported": "good", "contradicted": "bad", "undecided": "plain"}
"""Kinds of badges by verdict, in the order of the page."""


def page(title: str, collected: Collected, figures: Sequence[tuple[ReportFigure, bytes]]) -> str:
    """Return the whole page. Claims of the paper that have no run are left out.

    Args:
        figures: with their SVG.
    """
    runs = [run for condition in collected.conditions for run in condition.runs.values()]
    judged = [claim for claim in collected.judged if claim.has_runs]
    tables = [table for table in map(_keep_measured, collected.tables) if table.rows and table.name != CLAIMS]
    sections = (
        ("paper", "Compared with the paper", [table for table in tables if "paper" in table.columns]),
        ("tables", "All numbers", [table for table in tables if "paper" not in table.columns]),
    )
    columns = ("run", "environment", "method", "model", "seed", "evaluated after", "terminations")
    rows = [
        (
            run.path,
            *run.condition.names,
            run.seed,
            ", ".join(map(str, run.points)),
            count_terminations(run.episodes["termination"]),
        )
        for run in runs
    ]
    context = {
        "title": title,
        "written": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "counts": count_contents(collected.conditions),
        "conditions": html_table(*collected.overview, label="All conditions"),
        "figures": [(figure, show_svg(svg, figure.title)) for figure, svg in figures],
        "sentences": summarize(collected.conditions),
        "verdicts": {
            verdict: [claim for claim in judged if claim.verdict == verdict] for verdict in VERDICTS
        },
        "badges": VERDICTS,
        "caveat": lambda claim: _caveat(claim, runs),
        "interval": _interval,
        "sections": [section for section in sections if section[2]],
        "rows": ROWS,
        "html_table": html_table,
        "runs": runs,
        "run_table": html_table(columns, rows, label="Runs"),
        "changes": [f"{run.path}: {line}" for run in runs for line in process_lines(run.processes)],
        "caveats": collected.caveats,
        "notes": collected.notes,
        "problems": collected.problems,
        "style": Markup((files(__package__) / "templates" / "style.css").read_text(encoding="utf-8")),
    }
    return render("report.jinja", context)


def _keep_measured(table: Table) -> Table:
    """Return a table of the paper's values without the rows that no run measured."""
    if not {"paper", "ours"} <= {*table.columns}:
        return table
    ours = table.columns.index("ours")
    return msgspec.structs.replace(table, rows=[row for row in table.rows if row[ours] is not None])


def _caveat(judged: JudgedClaim, runs: Iterable[RunResult]) -> str:
    """Return the caveats of the models of a claim; empty without any."""
    judged_runs = (run for run in runs if str(run.condition.model) in judged.model)
    own = (run for run in judged_runs if any(process.model.caveat for process in run.processes))
    return "; ".join(dict.fromkeys(line for run in own for line in run.caveats))


def _interval(judged: JudgedClaim) -> str:
    """Return the measured value of a claim with its interval and seeds, the number of comparisons in the
    paper's direction, and the paper's value; empty if it is unknown."""
    row = judged.deciding
    if row.measured is None:
        return ""
    value = show_cell(row.measured)
    around = "" if row.low is None else f" ({show_cell(row.low)} to {show_cell(row.high)})"
    texts = [f"measured {value}{around}, {count_of(row.seeds, 'seed')}"]
    texts.append(f"{judged.direction} in the paper's direction")
    paper = judged.claim.paper
    return "; ".join([*texts, f"the paper: {paper}"] if paper else texts)
