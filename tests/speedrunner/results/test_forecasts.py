"""What runs were expected to take, beside what they took."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from serving.model_configs import load_model_config
from speedrunner.config.names import ConditionName
from speedrunner.results.engine_time import EngineUse
from speedrunner.results.forecast_records import Forecast, file_sizes, keep
from speedrunner.results.forecasts import forecast_table
from speedrunner.results.run_result import RunResult
from speedrunner.results.server_time import ServerUse
from tests.speedrunner.results.summaries import checkpoint, summary
from tests.speedrunner.run_samples import process


def forecast(run: RunResult, requests: float, **changes: object) -> Forecast:
    """Of 6 test episodes, with 20 requests or so more or less."""
    found = Forecast(
        dir=run.path,
        condition_name=ConditionName("babyai", "react", "tiny-random"),
        counts={"train": 0, "test": 6, "sleep": 0},
        files=9,
        mean={"requests": requests, "engine_s": 5.0, "usd": 1.0},
        sd={"requests": 10.0, "engine_s": 1.0, "usd": 0.1},
        measured={"test": 3},
        prices="a list",
        made=50.0,
    )
    return msgspec.structs.replace(found, **changes)


def played(folder: Path, seed: int = 0, **taken: float) -> RunResult:
    """A run that began at 100 and is finished."""
    run = summary("babyai", "react", seed, checkpoint(0, [{}] * 6))
    began = msgspec.structs.replace(process(load_model_config("tiny-random")), started=100.0)
    path = str(folder / Path(run.path).name)
    return replace(run, path=path, taken=taken, processes=[began])


def test_a_finished_run_has_a_row_for_each_measure_that_both_know(tmp_path: Path) -> None:
    run = played(tmp_path / "new", requests=120.0, bytes=3.0)
    keep([forecast(run, 90.0), forecast(run, 100.0)])  # the newest counts
    (row,) = forecast_table([run]).rows
    assert row[:5] == ("babyai", "react", "tiny-random", 0, "requests")
    # Student's quantile of 2 degrees of freedom is 2.92.
    assert row[5:] == (100.0, pytest.approx(70.8, abs=0.01), pytest.approx(129.2, abs=0.01), 120.0, 1.2)


def test_the_sum_of_several_runs_comes_first(tmp_path: Path) -> None:
    runs = [played(tmp_path, seed, requests=120.0) for seed in (0, 1)]
    keep([forecast(run, 100.0) for run in runs])
    first = forecast_table(runs).rows[0]
    assert first[:6] == ("all", "2 runs", None, None, "requests", 200.0)
    # Deviations of seeds of one condition add up: 200 - 2.92 * 20 and 200 + 2.92 * 20.
    assert first[6:] == (pytest.approx(141.6, abs=0.01), pytest.approx(258.4, abs=0.01), 240.0, 1.2)


def test_only_a_forecast_of_as_much_that_was_made_before_the_run_began_counts(tmp_path: Path) -> None:
    run = played(tmp_path, requests=120.0)
    assert forecast_table([run]).rows == []
    keep([forecast(run, 100.0, made=101.0), forecast(run, 100.0, counts={"train": 9, "test": 6, "sleep": 0})])
    assert forecast_table([run]).rows == []
    keep([forecast(run, 100.0)])
    assert len(forecast_table([run]).rows) == 1
    assert forecast_table([replace(run, unfinished=[4])]).rows == []


def test_usd_at_other_prices_are_not_compared(tmp_path: Path) -> None:
    run = played(tmp_path, usd=2.0)
    keep([forecast(run, 1.0, prices="another")])
    assert forecast_table([run]).rows == []
    keep([forecast(run, 1.0)])
    assert [row[4] for row in forecast_table([run]).rows] == ["usd"]


def test_engine_hours_are_a_run_s_share_of_its_server_beside_all_other_runs(tmp_path: Path) -> None:
    use = EngineUse(array("d", [100.0, 100.0 + 7200.0]), array("d", [100.0, 100.0 + 7200.0]))
    servers = [ServerUse(("m", "here", "1"), use, None)]
    runs = [replace(played(tmp_path, seed), servers=servers) for seed in (0, 1)]
    keep([forecast(runs[0], 1.0, mean={"engine_s": 1800.0}, sd={"engine_s": 0.0})])
    (row,) = forecast_table(runs).rows
    assert row[4:] == ("engine_h", 0.5, 0.5, 0.5, pytest.approx(1.0), pytest.approx(2.0))


def test_files_are_sized_by_what_they_grow_with(tmp_path: Path) -> None:
    files = ("trajectories/batch", "evaluations/0000", "sleeps/0001", "policies/v0000/skills.py")
    for number, name in enumerate((*files, "config.yaml", "carried/0000/trajectories/batch")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"." * 10**number)
    (tmp_path / "link").symlink_to(tmp_path / "config.yaml")
    assert file_sizes(tmp_path) == {"train": 1, "test": 10, "sleep": 1_100, "all": 110_000}
