"""The tables of results: group-bys over the frames of runs. docs/results.md describes each."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy
import pandas

from speedrunner.config.condition import COLUMNS
from speedrunner.results.break_even import break_even_table
from speedrunner.results.conditions import Condition, stack_frames
from speedrunner.results.inference import TAIL
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
from speedrunner.results.writing import Cell, Table, caption, table_of


def make_tables(conditions: Sequence[Condition], prices: str) -> list[Table]:
    """Return the tables of some runs.

    Args:
        prices: name of the price list, for captions.
    """
    checkpoints = stack_frames(conditions, "checkpoints")
    columns = [*COLUMNS, "seed", "checkpoint", *COUNTS, *LIMITS, *AVERAGED, *TRAINING]
    seeds = checkpoints.sort_values([*COLUMNS, "checkpoint", "seed"])[columns]
    training = average_seeds(checkpoints, (*TRAINING, "rollout_usd"))
    trained = training[[*TRAINING]].fillna(0.0).to_numpy().any(axis=1)
    libraries = average_seeds(checkpoints, LIBRARY)
    return [
        _performance(checkpoints, prices),
        table_of("seeds", caption("seeds"), seeds),
        table_of("training", caption("training", prices=prices), training[trained].reset_index()),
        break_even_table(conditions),
        stability_table(conditions),
        make_test_table(conditions),
        table_of("libraries", caption("libraries"), libraries[libraries["functions"] > 0].reset_index()),
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


def stability_table(conditions: Sequence[Condition]) -> Table:
    """Return how much of a value's variance over seeds is the actor's, and how much that of one batch with
    its sleep, for each condition whose seeds all started from one stored policy and its history.

    Such runs first evaluate that policy, each with its own seed. These means differ by the actor (and the
    worlds, if each seed has its own). After a batch and its sleep, they differ by these as well. The interval
    of the sleep's share is that of a ratio of two variances (F).
    """
    from scipy.special import fdtri  # type: ignore[import-untyped]

    rows: list[tuple[Cell, ...]] = []
    for condition in conditions:
        start, points = condition.identity.treatment.start, condition.points
        if start is None or start.seed is None or len(points) < 2:
            continue
        for metric in ("score", "output"):
            first, last = (condition.values(point, metric) for point in (points[0], points[-1]))
            means = [[first[seed].mean(), own.mean()] for seed, own in last.items() if seed in first]
            if (seeds := len(means)) < 2:
                continue
            actor, whole = (float(variance) for variance in numpy.var(means, axis=0, ddof=1))
            if not actor * whole > 0:
                continue
            spread = float(fdtri(seeds - 1, seeds - 1, 1 - TAIL))
            share, low, high = (max(0.0, 1 - ratio * actor / whole) for ratio in (1, spread, 1 / spread))
            amounts = sqrt(actor), sqrt(max(0.0, whole - actor)), share, low, high
            rows.append((*condition.names, metric, points[-1], seeds, *amounts))
    columns = [*COLUMNS, "metric", "checkpoint", "seeds", "actor_sd", "sleep_sd", "sleep_share"]
    return Table("stability", caption("stability"), [*columns, "low", "high"], rows)
