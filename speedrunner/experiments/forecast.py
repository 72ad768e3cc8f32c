"""Forecast what runs will use, from measured runs: tokens, requests, engine time, disk, USD.

A run consists of training episodes, test episodes and sleeps. For each kind, the forecast multiplies the
measured mean by the planned number. The interval is that of a sum of draws around an estimated mean: a
standard deviation s of m values gives s * sqrt(n + n² / m) for n planned ones, with Student's quantile for
the kind with the fewest measurements. Early measurements do not reflect later effects of learning: the
interval covers chance only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from speedrunner.config.names import ConditionName, condition_name
from speedrunner.config.schema import Config
from speedrunner.results.forecast_records import MEASURES, Forecast, Kind, frame_steps
from speedrunner.results.ledger import ledger, run_costs
from speedrunner.results.pricing import OWN, PriceBook, price_book, price_list
from speedrunner.results.prompt_growth import GROWTH, frame_prompts
from speedrunner.runs.plan import Evaluate, Sleep, Step, Wake
from speedrunner.runs.setup import Setup
from speedrunner.store.discovery import readable, runs_below
from speedrunner.store.run_data import RunData, load

if TYPE_CHECKING:
    import pandas


class NothingMeasured(Exception):
    """No measured run fits any planned run."""


Budgets = str
"""The limits of a run's episodes and sleeps: a forecast uses only measurements under the same ones."""

COLUMNS = ("condition_name", "budgets", "kind", *MEASURES, *GROWTH, "context")
"""Columns of a frame of measurements, with one row for each episode and sleep; an unknown amount is NaN.
`context` is the model's, in tokens, as it was served."""


def read_measurements(
    folders: Iterable[Path], prices: str | None = None
) -> tuple[pandas.DataFrame, list[str]]:
    """Return the measurements of the runs in some folders, with the columns `COLUMNS`, and a line for each
    damaged run.

    Args:
        prices: a file of `configs/prices/` for all of them; `None`: each run's own list.

    Raises:
        StorageError: a folder does not exist, or all its runs are damaged.
        InvalidConfig: the price list does not exist.
    """
    if prices is not None:
        price_list(prices)

    def read(path: Path) -> tuple[RunData, PriceBook] | None:
        run = load(path)
        is_measured = bool(run.settings and run.processes and run.episodes and ledger(run))
        _ = run.sleeps
        return (run, price_book(run, prices)) if is_measured else None

    paths = dict.fromkeys(run for folder in folders for run in runs_below(folder))
    loaded, problems = readable(paths, read)
    runs, books = [each[0] for each in loaded if each], [each[1] for each in loaded if each]
    import pandas

    frames = [pandas.DataFrame(columns=COLUMNS)]
    for run, costs in zip(runs, run_costs(runs, books), strict=True):
        steps = frame_steps(run, costs).join(frame_prompts(run))
        steps["condition_name"] = pandas.Series(
            [condition_name(run.settings)] * len(steps), steps.index, dtype=object
        )
        steps["budgets"] = budgets_of(run.settings)
        steps["context"] = run.processes[-1].actor.context
        frames.append(steps)
    known = [each for each in frames if len(each)] or frames
    return pandas.concat(known, ignore_index=True), problems


def forecast(setups: Sequence[Setup], known: pandas.DataFrame, prices: str = OWN) -> list[Forecast]:
    """Return the forecasts of planned runs; runs without similar measurements are left out.

    If a kind was not measured in a condition, another variant of its method in the same environment with the
    same model is used.

    Args:
        prices: name of the price list of `known`.

    Raises:
        NothingMeasured: no run has similar measurements.
    """
    found = [each for each in (_forecast(setup, known, prices) for setup in setups) if each is not None]
    if not found:
        there = [str(each) for each in known["condition_name"].unique()]
        raise NothingMeasured(
            f"no measured run has the condition and episode budgets of any of these {len(setups)} runs"
            f" (measured: {', '.join(there) or 'none'}): play a pilot first, such as scale=pilot"
            " run.seed=0, and name its folder with --from"
        )
    return found


def _forecast(setup: Setup, known: pandas.DataFrame, prices: str) -> Forecast | None:
    import pandas

    own, plan = condition_name(setup.config), setup.plan()
    counts = count_steps(plan)
    alike = known[known["budgets"] == budgets_of(setup.config)]
    mean, variance = pandas.Series(0.0, MEASURES), pandas.Series(0.0, MEASURES)
    measured_of: dict[Kind, int] = {}
    others: set[ConditionName] = set()
    for kind, planned in counts.items():
        if not planned:
            continue
        of_kind = alike[alike["kind"] == kind]
        source = _source(own, of_kind["condition_name"].unique())
        if source is None:
            return None
        others |= {source} - {own}
        sample = of_kind.loc[of_kind["condition_name"] == source, [*MEASURES]].astype(float)
        measured_of[kind] = count = len(sample)
        mean += planned * sample.mean(skipna=False)
        # Variance of a sum of this many values, with a mean estimated from the sample.
        variance += (sample.var() if count > 1 else 0.0) * (planned + planned**2 / count)
    names = [each for each in MEASURES if pandas.notna(mean[each])]
    return Forecast(
        dir=setup.config.run.dir,
        condition_name=own,
        counts=counts,
        files=_files(plan),
        mean={each: float(mean[each]) for each in names},
        sd={each: sqrt(variance[each]) for each in names},
        measured=measured_of,
        prices=prices,
        made=time.time(),
        source=min(others) if others else None,
    )


def budgets_of(config: Config) -> Budgets:
    """Return the budgets of a run's episodes and sleeps."""
    run, model = config.run, config.model
    bounds = (
        *(run.max_actions, run.reply_chars, run.wall_clock, run.wall_clock_s, run.stop_after_repeats),
        *(model.actor, model.inducer),
    )
    return msgspec.json.encode(bounds, order="sorted").decode()


def _source(own: ConditionName, there: Iterable[ConditionName]) -> ConditionName | None:
    """Return the condition with the measurements for a run: its own, or a variant of the method."""
    variants = [
        each
        for each in there
        if (each.env, each.model) == (own.env, own.model)
        and each.method.partition("-")[0] == own.method.partition("-")[0]
    ]
    return own if own in variants else next(iter(variants), None)


def count_steps(plan: Sequence[Step]) -> dict[Kind, int]:
    """Return the number of training episodes, test episodes and sleeps of a plan."""
    return {
        "train": sum(len(step.tasks) for step in plan if isinstance(step, Wake)),
        "test": sum(len(step.tasks) for step in plan if isinstance(step, Evaluate)),
        "sleep": sum(isinstance(step, Sleep) for step in plan),
    }


def _files(plan: Sequence[Step]) -> int:
    """Return the number of files: one for each step, four for each policy, and those that every
    run has once."""
    sleeps = sum(isinstance(step, Sleep) for step in plan)
    return len(plan) + 4 * (sleeps + 1) + len(ONCE)


ONCE = (
    *(
        "config.yaml",
        "processes.jsonl",
        "episodes.jsonl",
        "requests.jsonl",
        "tools.jsonl",
        "reconciliation.jsonl",
        "state.json",
    ),
    "workers.log",
)
"""Files that every run has once; the server's log is next to the runs."""
