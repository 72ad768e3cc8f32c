"""Forecasts stored in a folder of runs, and the measured amounts that they predict."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from speedrunner.config.names import ConditionName
from speedrunner.results.ledger import Line, RunCosts
from speedrunner.store import files, json_lines
from speedrunner.store.records import FORMAT
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key

if TYPE_CHECKING:
    import pandas

CONFIDENCE = 0.9

Kind = Literal["train", "test", "sleep"]

MEASURES = ("requests", "uncached", "cached", "output", "engine_s", "usd", "bytes")
"""Requests, tokens by class, seconds of local engines, USD and bytes on disk, wasted ones included."""

FORECASTS = "forecasts.jsonl"
"""File name of the forecasts in the folder of the runs."""


class Forecast(msgspec.Struct, frozen=True):
    """The expected requests, tokens, time, disk and cost of one run.

    Attributes:
        dir: the run's directory.
        condition_name: the condition of the run.
        counts: its training episodes, test episodes and sleeps.
        files: number of files on disk.
        mean, sd: the expected amount and its standard deviation, by measure; an unknown measure (without a
            price or a local engine) is missing.
        measured: number of measured episodes and sleeps of each kind behind the forecast.
        prices: name of the price list.
        made: time of the forecast in Unix seconds.
        source: the measured condition, if it is another one.
    """

    dir: str
    condition_name: ConditionName
    counts: dict[Kind, int]
    files: int
    mean: dict[str, float]
    sd: dict[str, float]
    measured: dict[Kind, int]
    prices: str
    made: float
    source: ConditionName | None = None
    format: int = FORMAT


class Sum(msgspec.Struct, frozen=True):
    """The total of one measure over several runs, with its interval at `CONFIDENCE`.

    The interval is missing if a kind of step was measured only once.
    """

    mean: float
    low: float | None
    high: float | None


def total(forecasts: Sequence[Forecast], measure: str) -> Sum | None:
    """Return the sum of one measure; `None` if a forecast lacks it. Errors in one condition are
    correlated."""
    if not forecasts or any(measure not in each.mean for each in forecasts):
        return None
    mean = sum(each.mean[measure] for each in forecasts)
    deviations: dict[ConditionName, float] = {}
    for each in forecasts:
        deviations[each.condition_name] = deviations.get(each.condition_name, 0.0) + each.sd[measure]
    freedom = min(min(each.measured.values()) for each in forecasts) - 1
    if freedom < 1:
        return Sum(mean, None, None)
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    half = stdtrit(freedom, (1 + CONFIDENCE) / 2) * sqrt(sum(sd**2 for sd in deviations.values()))
    return Sum(mean, float(max(mean - half, 0.0)), float(mean + half))


def keep(forecasts: Sequence[Forecast]) -> None:
    """Store forecasts next to their runs, for comparison with the measured amounts. Raises `StorageError`."""
    for each in forecasts:
        folder = Path(each.dir).parent
        with files.explain_errors(folder, "made"):
            folder.mkdir(parents=True, exist_ok=True)
        inside = msgspec.structs.replace(each, dir=Path(each.dir).name)
        json_lines.append_record(folder / FORECASTS, inside, durable=False)


def read_forecasts(folder: Path) -> list[Forecast]:
    """Return a folder's forecasts, oldest first; `dir` is the run's name. Raises `StorageError`."""
    return json_lines.read_records(folder / FORECASTS, Forecast)


def measured_amounts(run: RunData, costs: RunCosts) -> dict[str, float]:
    """Return the known amounts that a run used, by measure. Raises `StorageError`."""
    taken = _amounts(costs.total)
    if costs.unpriced:
        taken.pop("usd", None)
    return taken | {"bytes": sum(file_sizes(run.path).values())}


def frame_steps(run: RunData, costs: RunCosts) -> pandas.DataFrame:
    """Return the amounts of each episode and sleep of a run by its key, with its `kind`; NaN if unknown.

    Other amounts of the run are spread evenly over all episodes and sleeps. The bytes of a kind's files are
    spread over that kind. Raises `StorageError`.
    """
    import pandas

    kinds: dict[str, Kind] = {row.episode: row.phase for row in run.episodes}
    kinds |= {sleep_key(record.sleep): "sleep" for record in run.sleeps}
    names, nothing = list(MEASURES[:-1]), dict.fromkeys(MEASURES, 0.0)
    lines = [costs.episodes.get(key, Line()) for key in kinds]
    amounts = [_amounts(each) if each.requests else nothing for each in lines]
    own = pandas.DataFrame(amounts, index=list(kinds), columns=names)
    found = own + (pandas.Series(_amounts(costs.total), names) - own.sum()) / len(kinds)
    found["kind"] = list(kinds.values())
    sizes = file_sizes(run.path)
    shares = found["kind"].map(sizes) / found["kind"].map(found["kind"].value_counts())
    return found.assign(bytes=shares + sizes["all"] / len(kinds))


def _amounts(line: Line) -> dict[str, float]:
    """Return the amounts of a line of costs by measure; unknown seconds and USD are left out."""
    tokens = line.tokens
    known = {"engine_s": line.engine_s, "usd": line.usd}
    amounts = {
        "requests": float(line.requests),
        "uncached": tokens.computed,
        "cached": tokens.cached,
        "output": tokens.reasoning + tokens.action,
    }
    return amounts | {name: amount for name, amount in known.items() if amount is not None}


def file_sizes(path: Path) -> dict[str, float]:
    """Return the bytes of a run's files, by what they grow with: `train`, `test`, `sleep` or `all`."""
    folders = {"trajectories": "train", "evaluations": "test", "sleeps": "sleep", "policies": "sleep"}
    sizes = {"train": 0.0, "test": 0.0, "sleep": 0.0, "all": 0.0}
    for place, _, names in os.walk(path):  # skips what it cannot read
        parts = Path(place).relative_to(path).parts
        for name in names:
            with suppress(OSError):  # a temporary file, or a path that is too long
                found = Path(place, name).lstat()
                if stat.S_ISREG(found.st_mode):
                    sizes[folders.get(parts[0] if parts else "", "all")] += found.st_size
    return sizes
