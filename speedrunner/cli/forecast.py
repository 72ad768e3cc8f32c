"""`speedrunner forecast`: what an experiment will take."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speedrunner.cli.command import AsJson, PriceList, RunsFolder, tell_left_out
from speedrunner.console import aligned, json_text, visible

if TYPE_CHECKING:
    from speedrunner.results.forecast_records import Forecast, Sum

SHOWN = {
    **{name: (name, 1.0) for name in ("requests", "uncached", "cached", "output")},
    "engine_s": ("engine h", 1 / 3600),
    "usd": ("USD", 1.0),
    "bytes": ("bytes", 1.0),
}
"""Each measure's name for people, and what it is multiplied by."""


def forecast(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[FILE] [KEY=VALUE]...", help="The runs, as for `speedrunner sweep`.", show_default=False
        ),
    ],
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="Runs that were measured, or a folder of such; runs by default.",
            show_default=False,
        ),
    ] = None,
    folder: RunsFolder = None,
    prices: PriceList = None,
    as_json: AsJson = False,
) -> None:
    """Say what runs will take, from what a few episodes of their settings took: `scale=pilot` plays such.

    Requests, tokens by class, engine time, USD, disk, with an interval. The forecast is kept beside the runs,
    and `speedrunner report` compares it with what they took.

    Example: speedrunner forecast experiment=main model=qwen3.5-27b --from runs/pilot
    """
    from speedrunner.experiments import forecast as forecasts
    from speedrunner.experiments.grid import grid_of
    from speedrunner.experiments.sweep import members
    from speedrunner.results.forecast_records import keep, total
    from speedrunner.results.pricing import OWN

    grid = grid_of(what, folder)
    setups = [each.setup for each in members(grid.runs(), plays_here=False)]
    known, problems = forecasts.measured(sources or [Path("runs")], prices)
    tell_left_out(problems)
    found = forecasts.forecast(setups, known, prices or OWN)
    keep(found)
    left_out = {setup.config.run.dir for setup in setups}.difference(each.dir for each in found)
    totals = {measure: total(found, measure) for measure in SHOWN}
    if as_json:
        content = {"runs": found, "total": totals, "not_measured": sorted(left_out)}
        typer.echo(json_text(content))
        return
    scaled = any(each.startswith("scale=") for each in what)
    again = shlex.join([*what, *([] if scaled else ["scale=pilot"]), "run.seed=0"])
    for line in (*_table(found, totals), "", *_about(found, sorted(left_out), again)):
        typer.echo(visible(line))


def _table(found: Sequence[Forecast], totals: Mapping[str, Sum | None]) -> list[str]:
    """A line for each setting, then their sum and the ends of its interval."""
    from speedrunner.results.forecast_records import total

    rows = [["", "runs", "episodes", "sleeps", *(title for title, _ in SHOWN.values()), "files"]]
    for setting in dict.fromkeys(each.setting for each in found):
        own = [each for each in found if each.setting == setting]
        mark = "*" if any(each.source for each in own) else ""
        sums = {measure: total(own, measure) for measure in SHOWN}
        rows.append([f"{setting.env} {setting.method} {setting.model}{mark}", *_cells(own, sums)])
    rows.append(["all", *_cells(found, totals)])
    for end in ("low", "high"):
        rows.append([f"  {end}", "", "", "", *(_amount(totals, measure, end) for measure in SHOWN), ""])
    return aligned(rows)


def _cells(found: Sequence[Forecast], sums: Mapping[str, Sum | None]) -> list[str]:
    counts = {kind: sum(each.counts[kind] for each in found) for kind in ("train", "test", "sleep")}
    return [
        *(str(len(found)), str(counts["train"] + counts["test"]), str(counts["sleep"])),
        *(_amount(sums, measure, "mean") for measure in SHOWN),
        str(sum(each.files for each in found)),
    ]


def _amount(sums: Mapping[str, Sum | None], measure: str, which: str) -> str:
    """Three digits, large ones in thousands, millions or billions."""
    found = sums[measure]
    value: float | None = None if found is None else getattr(found, which)
    if value is None:
        return "-"
    amount = value * SHOWN[measure][1]
    for sign, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= size:
            return f"{amount / size:.3g}{sign}"
    return f"{amount:.3g}"


def _about(found: Sequence[Forecast], left_out: Sequence[str], again: str) -> Iterator[str]:
    from speedrunner.results.forecast_records import CONFIDENCE

    yield (
        f"low, high: the {CONFIDENCE:.0%} interval of the sum. It is about chance alone: what learning"
        " changes after the measured episodes it does not know."
    )
    if any(each.source for each in found):
        yield "*: what this variant has not been measured in is taken from another one of its method."
    if left_out:
        names = ", ".join(Path(each).name for each in left_out[:3]) + (", ..." if len(left_out) > 3 else "")
        yield f"Not measured, and not in the sum: {len(left_out)} runs ({names}). What measures them:"
        yield f"speedrunner sweep {again}"
