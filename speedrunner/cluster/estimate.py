"""Estimate what unfinished runs will take, from finished runs in the same folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import isnan, nan
from pathlib import Path

from speedrunner.cluster.status import run_status
from speedrunner.config.names import condition_name
from speedrunner.plain.console import short_number
from speedrunner.results.engine_time import gpu_hours
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.runs.outline import Outline
from speedrunner.store.discovery import DAMAGED, runs_below
from speedrunner.store.run_data import load


def estimate(outlines: Iterable[Outline], folder: Path) -> str | None:
    """Return a line with the GPU-hours and USD of the unfinished runs of some conditions.

    Each condition is scaled by episodes from a finished run of its environment and model, of its method if
    there is one. `None`: a condition has no such run. Runs that cannot be read are left out.
    """
    paths = runs_below(folder) if folder.exists() else []
    finished = []
    for path in paths:
        with suppress(*DAMAGED):
            if run_status(path).state == "finished":
                finished.append((run := load(path), condition_name(run.settings), price_book(run)))
    hours, usd = 0.0, 0.0  # NaN: unknown for one of them
    sources: dict[str, None] = {}
    for outline in outlines:
        if outline.condition is None or not outline.episodes:
            continue
        wanted = outline.condition
        alike = [each for each in finished if (each[1].env, each[1].model) == (wanted.env, wanted.model)]
        if not alike:
            return None
        source, _, book = max(alike, key=lambda each: each[1] == wanted)
        sources[source.path.name] = None
        costs = run_costs(source, book)
        share = outline.episodes / len(source.episodes)
        own = gpu_hours(source.processes[-1].actor, costs.engine_s)
        hours += share * (nan if own is None else own)
        usd += share * (nan if costs.unpriced or costs.total.usd is None else costs.total.usd)
    if not sources:
        return None
    amounts = (short_number(None if isnan(each) else each) for each in (hours, usd))
    return "GPU-hours: {}, USD: {}, scaled by episodes from {}.".format(*amounts, ", ".join(sources))
