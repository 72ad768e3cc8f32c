"""`speedrunner tables`: what runs came to, as CSV and LaTeX, beside the paper's numbers."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from speedrunner.cli.command import PriceList, plain_console, waiting_line
from speedrunner.console import visible

if TYPE_CHECKING:
    from speedrunner.results.conditions import Condition
    from speedrunner.results.paper import Beside
    from speedrunner.results.run_result import RunResult
    from speedrunner.results.writing import Table


Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Runs, and folders with runs in them or below.")
]


def tables(
    folders: Folders,
    out: Annotated[Path, typer.Option(metavar="OUT", help="Where the tables go.", show_default=False)],
    prices: PriceList = None,
    holm: Annotated[
        bool, typer.Option("--holm", help="Correct p-values by Holm's procedure, per metric and table.")
    ] = False,
) -> None:
    """Write tables of all runs below some folders, finished or not, as CSV and LaTeX.

    They are grouped by what they differ in but for the seed; docs/statistics.md says what each table holds.
    The exit status is 1 when a run is damaged, which is left out, or a folder holds none.

    Example: speedrunner tables runs --out tables --prices gpt-5.4-mini
    """
    from speedrunner.results.writing import write
    from speedrunner.store.files import StorageError

    if out.exists() and not out.is_dir():
        raise StorageError(f"--out {out} is a file: name a folder for the tables")
    found = read_tables(folders, prices, corrected=holm)
    write(out, found.tables, found.remarks)
    console = plain_console()
    for line in [*_said(found), *found.notes, *found.remarks]:
        console.print(visible(line), soft_wrap=True)
    count = len(found.tables)
    console.print(f"{count} tables, each as .csv and .tex, are in {visible(str(out))}", soft_wrap=True)
    tell_problems(found)


def tell_problems(found: Found) -> None:
    """Name the runs that are left out on standard error; the exit status is 1 then."""
    for problem in found.problems:
        typer.echo(visible(f"error: {problem}"), err=True)
    if found.problems:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Found:
    """What was read of some folders.

    Attributes:
        runs: in the order of their folders.
        groups: the same by setting.
        beside: the paper's numbers and ours.
        tables: all of them.
        notes: runs that are left out as another one has their setting and seed.
        remarks: what the cards of the models say of their results.
        problems: what could not be read, a line each.
        options: what the command that fills a gap has beside experiment and model.
    """

    runs: list[RunResult]
    groups: list[Condition]
    beside: list[Beside]
    tables: list[Table]
    notes: list[str]
    remarks: list[str]
    problems: list[str]
    options: str


def read_tables(folders: list[Path], prices: str | None, *, corrected: bool) -> Found:
    """Read all runs below some folders, and make the tables.

    Args:
        prices: a file of `configs/prices/`; `None`: each run's own list.
        corrected: whether p-values are corrected by Holm's procedure.

    Raises:
        InvalidConfig: there is no such price list.
        StorageError: there is no run that can be read.
    """
    from speedrunner.config.schema import InvalidConfig
    from speedrunner.experiments.damage import DAMAGED
    from speedrunner.results.conditions import group_runs
    from speedrunner.results.forecasts import forecast_table
    from speedrunner.results.paper import beside, published
    from speedrunner.results.paper_tables import paper_tables
    from speedrunner.results.pricing import GPU_HOURS, price_list
    from speedrunner.results.tables import make_tables
    from speedrunner.store.files import StorageError

    if prices == GPU_HOURS:
        raise InvalidConfig(
            f"--prices {GPU_HOURS} is for `speedrunner cost`: here runs are priced by the token"
        )
    if prices is not None:
        price_list(prices)
    runs, problems = _read(folders, prices)
    if not runs:
        raise StorageError("; ".join(problems))
    groups, notes = group_runs(runs)
    names = ", ".join(dict.fromkeys(run.prices for run in runs))
    options = _options(folders, runs)
    rows = beside(published(), groups, options)
    made = [*make_tables(groups, prices=names, corrected=corrected), *paper_tables(rows)]
    try:
        made.append(forecast_table(runs))
    except DAMAGED as error:
        problems.append(f"the forecasts of runs cannot be used: {error or type(error).__name__}")
    remarks = sorted({remark for run in runs for remark in run.remarks})
    return Found(runs, groups, rows, made, notes, remarks, problems, options)


def _options(folders: list[Path], runs: list[RunResult]) -> str:
    """Scale and folder of the newest sweep that was begun there, as its command had them; without a scale,
    the sizes in which all runs differ from the paper's."""
    from speedrunner.config.schema import RunConfig
    from speedrunner.experiments.plans import noted_sweeps
    from speedrunner.store.files import StorageError

    words: list[str] = []
    for folder in folders:
        with suppress(StorageError, ValueError):
            for plan in noted_sweeps(folder):
                words = [each for each in shlex.split(plan.command) if each.startswith(("scale=", "--dir="))]
    if not any(each.startswith("scale=") for each in words):
        usual = {field.name: field.default for field in msgspec.structs.fields(RunConfig)}
        for name in ("rollouts", "sleep_every", "eval_every", "test_episodes"):
            sizes = {getattr(run.config.run, name) for run in runs}
            if len(sizes) == 1 and sizes != {usual[name]}:
                words.append(f"run.{name}={sizes.pop()}")
    return "".join(f" {shlex.quote(each)}" for each in words)


def _read(folders: list[Path], prices: str | None) -> tuple[list[RunResult], list[str]]:
    """All runs that can be read, each once, and what is wrong with the others."""
    from speedrunner.experiments.plans import runs_below
    from speedrunner.results.reading import read_results
    from speedrunner.store.files import StorageError

    found: dict[Path, Path] = {}
    problems = []
    for folder in folders:
        try:
            here = runs_below(folder)
        except StorageError as error:
            problems.append(str(error))
            continue
        if not here:
            problems.append(f"{folder} holds no run: no folder in it has a config.yaml")
        found |= {path.resolve(): path for path in here}
    runs = []
    with waiting_line() as status:
        status(f"reading {len(found)} runs")
        for number, summary in enumerate(read_results(list(found.values()), prices), start=1):
            status(f"{number} of {len(found)} runs are read")
            if isinstance(summary, str):
                problems.append(summary)
            else:
                runs.append(summary)
    return runs, problems


def _said(found: Found) -> list[str]:
    """What was read, and what is missing."""
    rows = found.beside
    lines = [f"{len(found.runs)} runs of {len(found.groups)} settings"]
    for run in found.runs:
        if run.unfinished:
            points = ", ".join(map(str, run.unfinished))
            lines.append(f"{run.path} is not finished: no whole evaluation after {points} rollouts")
        if unscored := int(run.checkpoints["unscored"].sum()):
            lines.append(
                f"{run.path}: {unscored} test episodes ended by an infrastructure error and are in no mean"
            )
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
            f"missing or not whole are {sum(missing.values())} of {len(rows)} cells of the paper's tables:"
        )
        lines += [f"  {count:4}  {command}" for command, count in missing.items()]
    return lines
