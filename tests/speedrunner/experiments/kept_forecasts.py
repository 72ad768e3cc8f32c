"""Forecasts of planned runs, stored next to these."""

from __future__ import annotations

import time
from collections.abc import Sequence

from speedrunner.config.names import condition_name
from speedrunner.experiments.forecast import count_steps
from speedrunner.experiments.sweep_members import Member
from speedrunner.results.forecast_records import MEASURES, Forecast, keep


def keep_forecasts(runs: Sequence[Member], **measures: float) -> None:
    """Store a forecast of each run with 10 of each measure, except for those that are named."""
    keep(
        [
            Forecast(
                dir=each.path,
                condition_name=condition_name(each.setup.config),
                counts=count_steps(each.setup.plan()),
                files=1,
                mean=dict.fromkeys(MEASURES, 10.0) | measures,
                sd=dict.fromkeys(MEASURES, 0.0),
                measured={"train": 5, "test": 5, "sleep": 5},
                prices="model",
                made=time.time(),
            )
            for each in runs
        ]
    )
