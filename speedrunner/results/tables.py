"""The tables of results: group-bys over the frames of runs. docs/results.md describes each."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from speedrunner.config.condition import COLUMNS
from speedrunner.results.break_even import break_even_table
from speedrunner.results.conditions import Condition, stack_frames
from speedrunner.results.means import (
    AVERAGED,
    CONDITION,
    COUNTS,
    LIMITS,
    TRAINING,
    average_seeds,
)
from speedrunner.results.pairing import make_test_table
from speedrunner.results.run_result import LIBRARY
from speedrunner.results.stability import stability_table
from speedrunner.results.writing import Table, caption, table_of


def make_tables(conditions: Sequence[Condition], prices: str) -> list[Table]:
    """Return the tables of some runs.

    Args:
        prices: name of the price list, for captions.
    """
    checkpoints = stack_frames(conditions, "checkpoints")
    return [
        _performance(checkpoints, prices),
        _seeds(checkpoints),
        _training(checkpoints, prices),
        break_even_table(conditions),
        stability_table(conditions),
        make_test_table(conditions),
        _libraries(checkpoints),
        table_of("skills", caption("skills"), stack_frames(conditions, "skills").drop(columns="run")),
    ]


def _performance(checkpoints: pandas.DataFrame, prices: str) -> Table:
    means = average_seeds(checkpoints, AVERAGED)
    ended = checkpoints[[*LIMITS]].mul(checkpoints["episodes"], axis=0)
    sums = checkpoints.assign(**ended).groupby(CONDITION)[[*COUNTS, *LIMITS]].sum()
    shares = sums[[*LIMITS]].div(sums["episodes"], axis=0)
    found = means[["seeds"]].join([sums[[*COUNTS]], shares, means.drop(columns="seeds")])
    text = caption("performance", limits=", ".join(LIMITS), prices=prices)
    return table_of("performance", text, found.reset_index())


def _seeds(checkpoints: pandas.DataFrame) -> Table:
    ordered = checkpoints.sort_values([*COLUMNS, "checkpoint", "seed"])
    columns = [*COLUMNS, "seed", "checkpoint", *COUNTS, *LIMITS, *AVERAGED, *TRAINING]
    return table_of("seeds", caption("seeds"), ordered[columns])


def _training(checkpoints: pandas.DataFrame, prices: str) -> Table:
    found = average_seeds(checkpoints, (*TRAINING, "rollout_usd"))
    trained = found[[*TRAINING]].fillna(0.0).to_numpy().any(axis=1)
    return table_of("training", caption("training", prices=prices), found[trained].reset_index())


def _libraries(checkpoints: pandas.DataFrame) -> Table:
    found = average_seeds(checkpoints, LIBRARY)
    return table_of("libraries", caption("libraries"), found[found["functions"] > 0].reset_index())
