"""What runs were expected to take, beside what they took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist

from speedrunner.experiments.forecast import CONFIDENCE, Forecast, kept
from speedrunner.statistics.summary import Summary
from speedrunner.statistics.writing import Cell, Table


def forecast_table(runs: Sequence[Summary]) -> Table:
    """A row for each measure of each finished run of which a forecast lies beside it.

    Raises `StorageError` where forecasts cannot be read.
    """
    known = {folder: kept(folder) for folder in {Path(run.path).parent for run in runs}}
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        forecast = known[Path(run.path).parent].get(Path(run.path).name)
        if forecast is not None and not run.unfinished:
            rows += _rows(run, forecast)
    columns = ("env", "method", "model", "seed", "measure", "forecast", "low", "high", "truth", "ratio")
    text = (
        f"What finished runs took beside what was forecast, with the {CONFIDENCE:.0%} interval of chance;"
        " ratio: truth by forecast. Tokens, requests and USD with what was wasted, bytes on the disk."
    )
    return Table("forecast", text, columns, rows)


def _rows(run: Summary, forecast: Forecast) -> list[tuple[Cell, ...]]:
    width = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    found: list[tuple[Cell, ...]] = []
    for measure, truth in run.taken.items():
        if measure in forecast.mean:
            mean, half = forecast.mean[measure], width * forecast.sd[measure]
            own = run.setting.env, run.setting.method, run.setting.model, run.seed
            ratio = truth / mean if mean else None
            found.append((*own, measure, mean, max(mean - half, 0.0), mean + half, truth, ratio))
    return found
