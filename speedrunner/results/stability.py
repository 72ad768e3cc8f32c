"""How much of a score's variance over seeds is the actor's, and how much that of one batch with its sleep.

Runs that start from one stored policy and its history first evaluate that policy, each with its own seed.
These means differ by the actor (and the worlds, if each seed has its own). After a batch and its sleep, they
differ by these as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy

from speedrunner.results.conditions import Condition
from speedrunner.results.inference import TAIL
from speedrunner.results.writing import Cell, Table, caption

METRICS = ("score", "output")


def stability_table(conditions: Sequence[Condition]) -> Table:
    """Return the parts of the variance of each condition whose seeds all started from one stored policy. The
    interval of the sleep's share is that of a ratio of two variances (F)."""
    from scipy.special import fdtri  # type: ignore[import-untyped]

    rows: list[tuple[Cell, ...]] = []
    for condition in conditions:
        start, points = condition.identity.treatment.start, condition.points
        if start is None or start.seed is None or len(points) < 2:
            continue
        for metric in METRICS:
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
    columns = [
        "env",
        "method",
        "model",
        "metric",
        "checkpoint",
        "seeds",
        "actor_sd",
        "sleep_sd",
        "sleep_share",
    ]
    return Table("stability", caption("stability"), [*columns, "low", "high"], rows)
