"""`speedrunner forecast`: tokens, time and cost of planned runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import AsJson, PriceList, RunsFolder, SweepRuns
from speedrunner.cli.output import say, say_json, say_left_out, terminal_width
from speedrunner.config.console import align_columns, short_number
from speedrunner.config.schema import InvalidConfig
from speedrunner.experiments import forecast as forecasts
from speedrunner.experiments.context_warning import warn_of_contexts
from speedrunner.experiments.grid import grid_of
from speedrunner.experiments.sweep_members import members
from speedrunner.results.forecast_records import CONFIDENCE, Forecast, Sum, keep, total
from speedrunner.results.pricing import OWN

SHOWN = {
    **{name: (name, 1.0) for name in ("requests", "uncached", "cached", "output")},
    "engine_s": ("engine h", 1 / 3600),
    "usd": ("USD", 1.0),
    "bytes": ("bytes", 1.0),
}
"""Each measure's name for people, and the factor of its values."""

DROPPED = ("files", "bytes", "sleeps", "requests")
"""Columns that a narrow terminal leaves out first."""


def forecast(
    what: SweepRuns,
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="Measured runs, or a folder of them. Default: runs.",
            show_default=False,
        ),
    ] = None,
    folder: RunsFolder = None,
    prices: PriceList = None,
    as_json: AsJson = False,
) -> None:
    """Estimate tokens, time and cost of runs from a pilot.

    `speedrunner sweep ... scale=pilot` plays a few episodes of each condition. Requests, tokens by class,
    engine time, USD and disk are estimated with an interval. The forecast is stored next to the runs, and
    `speedrunner report` compares it with the results. Lines warn of conditions with episodes that will fill
    the model's context before their limit of calls.

    Example: speedrunner forecast experiment=main model=qwen3.5-27b --from runs/pilot
    """
    if (path := Path(what[0])).is_dir():
        raise InvalidConfig(
            f"{path} is a folder: name the planned runs first, then --from {path} for the measured ones"
        )
    grid = grid_of(what, folder)
    runs = members(grid.runs(), plays_here=False)
    setups = [each.setup for each in runs]
    default = [Path("runs")] if Path("runs").exists() else []
    known, problems = forecasts.read_measurements(sources or default, prices)
    say_left_out(problems)
    warnings = warn_of_contexts(setups, known)
    try:
        found = forecasts.forecast(setups, known, prices or OWN)
    except forecasts.NothingMeasured:
        say(*(each.describe() for each in warnings), err=True)
        raise
    keep(found)
    left_out = {setup.config.run.dir for setup in setups}.difference(each.dir for each in found)
    totals = {measure: total(found, measure) for measure in SHOWN}
    if as_json:
        say_json(
            {
                "runs": found,
                "total": totals,
                "not_measured": sorted(left_out),
                "contexts": warnings,
            }
        )
        return
    scaled = any(each.startswith("scale=") for each in what)
    again = shlex.join([*what, *([] if scaled else ["scale=pilot"]), "run.seed=0"])
    say(*_table(found, totals, terminal_width()), "", *(each.describe() for each in warnings))
    say(*_notes(found, sorted(left_out), again))


def _table(found: Sequence[Forecast], totals: Mapping[str, Sum | None], width: float) -> list[str]:
    """Return a line for each condition, then their sum and its interval."""
    rows = [["", "runs", "episodes", "sleeps", *(title for title, _ in SHOWN.values()), "files"]]
    for condition_name in dict.fromkeys(each.condition_name for each in found):
        own = [each for each in found if each.condition_name == condition_name]
        mark = "*" if any(each.source for each in own) else ""
        sums = {measure: total(own, measure) for measure in SHOWN}
        rows.append([f"{condition_name}{mark}", *_cells(own, sums)])
    rows.append(["all", *_cells(found, totals)])
    for end in ("low", "high"):
        rows.append([f"  {end}", "", "", "", *(_amount(totals, measure, end) for measure in SHOWN), ""])
    return align_columns(rows, width, DROPPED)


def _cells(found: Sequence[Forecast], sums: Mapping[str, Sum | None]) -> list[str]:
    counts = {kind: sum(each.counts[kind] for each in found) for kind in ("train", "test", "sleep")}
    return [
        *(str(len(found)), str(counts["train"] + counts["test"]), str(counts["sleep"])),
        *(_amount(sums, measure, "mean") for measure in SHOWN),
        str(sum(each.files for each in found)),
    ]


def _amount(sums: Mapping[str, Sum | None], measure: str, which: str) -> str:
    found = sums[measure]
    value: float | None = None if found is None else getattr(found, which)
    return short_number(None if value is None else value * SHOWN[measure][1])


def _notes(found: Sequence[Forecast], left_out: Sequence[str], again: str) -> Iterator[str]:
    yield (
        f"low, high: the {CONFIDENCE:.0%} interval of the sum. It covers chance alone, not what learning"
        " changes after the measured episodes."
    )
    if any(each.source for each in found):
        yield "*: partly estimated from another variant of the method, because this one was not measured."
    if left_out:
        names = ", ".join(Path(each).name for each in left_out[:3]) + (", ..." if len(left_out) > 3 else "")
        yield f"Not measured and not in the sum: {len(left_out)} runs ({names}). To measure them:"
        yield f"speedrunner sweep {again}"
