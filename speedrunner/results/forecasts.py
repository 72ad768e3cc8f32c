"""Forecasts compared with measured amounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import astuple

from speedrunner.results.forecast_records import CONFIDENCE, Forecast, read_forecasts, total
from speedrunner.results.run_result import RunResult
from speedrunner.results.server_time import server_seconds
from speedrunner.results.writing import Cell, Table


def forecast_table(runs: Sequence[RunResult]) -> Table:
    """Return a row for each measure of each finished run with a forecast from before its start. The rows for
    the sum of these runs come first.

    Raises `StorageError` if forecasts cannot be read.
    """
    known = {folder: read_forecasts(folder) for folder in {Path(run.path).parent for run in runs}}
    found = [(run, each) for run in runs for each in [_forecast(run, known[Path(run.path).parent])] if each]
    if found:
        seconds = server_seconds({run.path: run.servers for run in runs})
        measured = {path: {"engine_s": amount} for path, amount in seconds.items()}
        found = [(replace(run, taken=run.taken | measured.get(run.path, {})), each) for run, each in found]
    rows: list[tuple[Cell, ...]] = []
    if len(found) > 1:
        together = [run for run, _ in found], [each for _, each in found]
        rows += [("all", f"{len(found)} runs", None, None, *row) for row in _rows(*together)]
    for run, each in found:
        own = *astuple(run.condition_name), run.seed
        rows += [(*own, *row) for row in _rows([run], [each])]
    columns = ("env", "method", "model", "seed", "measure", "forecast", "low", "high", "truth", "ratio")
    text = (
        "Finished runs compared with the forecasts from before their start, with the forecast's"
        f" interval at {CONFIDENCE:.0%}, which covers chance only; ratio: actual over forecast. Tokens,"
        " requests and USD include waste; disk: bytes. engine_h: a run's share of the hours of its"
        " servers, if all runs on these servers are included."
    )
    return Table("forecast", text, columns, rows)


def _forecast(run: RunResult, known: Sequence[Forecast]) -> Forecast | None:
    """Return the newest forecast of a finished run with the same numbers of episodes and sleeps, made before
    its start."""
    if run.unfinished or run.started is None:
        return None
    phases = run.episodes["phase"]
    counts = {phase: int((phases == phase).sum()) for phase in ("train", "test")} | {"sleep": len(run.sleeps)}
    name = Path(run.path).name
    fitting = [
        each for each in known if each.dir == name and each.made < run.started and each.counts == counts
    ]
    return fitting[-1] if fitting else None


def _rows(runs: Sequence[RunResult], forecasts: Sequence[Forecast]) -> list[tuple[Cell, ...]]:
    found: list[tuple[Cell, ...]] = []
    for measure in runs[0].taken:
        if any(measure not in run.taken for run in runs):
            continue
        if measure == "usd" and any(
            run.prices != each.prices for run, each in zip(runs, forecasts, strict=True)
        ):
            continue  # another price list
        expected, truth = total(forecasts, measure), sum(run.taken[measure] for run in runs)
        if expected is not None:
            ratio = truth / expected.mean if expected.mean else None
            amounts: list[float | None] = [expected.mean, expected.low, expected.high, truth]
            if measure == "engine_s":
                measure = "engine_h"
                amounts = [each and each / 3600 for each in amounts]
            found.append((measure, *amounts, ratio))
    return found
