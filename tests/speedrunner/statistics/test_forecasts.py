"""What runs were expected to take, beside what they took."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from speedrunner.config.names import Setting
from speedrunner.experiments.forecast import Forecast, keep
from speedrunner.statistics.forecasts import forecast_table
from speedrunner.statistics.summary import Summary
from tests.speedrunner.statistics.summaries import summary


def forecast(run: Summary, requests: float) -> Forecast:
    return Forecast(
        dir=run.path,
        setting=Setting("babyai", "react", "tiny"),
        counts={"train": 0, "test": 6, "sleep": 0},
        files=9,
        mean={"requests": requests, "engine_s": 5.0},
        sd={"requests": 10.0, "engine_s": 1.0},
        measured={"test": 3},
    )


def played(folder: Path, **taken: float) -> Summary:
    run = summary()
    return msgspec.structs.replace(run, path=str(folder / Path(run.path).name), taken=taken)


def test_a_finished_run_has_a_row_for_each_measure_that_both_know(tmp_path: Path) -> None:
    run = played(tmp_path, requests=120.0, usd=3.0)
    keep(tmp_path, [forecast(run, 90.0), forecast(run, 100.0)])  # the newest counts
    (row,) = forecast_table([run]).rows
    assert row[:5] == ("babyai", "react", "tiny", 0, "requests")
    assert row[5:] == (100.0, pytest.approx(83.551, abs=0.01), pytest.approx(116.449, abs=0.01), 120.0, 1.2)


def test_an_unfinished_run_and_one_without_a_forecast_have_none(tmp_path: Path) -> None:
    run = played(tmp_path, requests=120.0)
    assert forecast_table([run]).rows == []
    keep(tmp_path, [forecast(run, 100.0)])
    assert forecast_table([msgspec.structs.replace(run, unfinished=[4])]).rows == []
