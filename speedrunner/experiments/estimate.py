"""Estimate what unfinished runs will take, from finished runs in the same folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from speedrunner.config.console import short_number
from speedrunner.config.names import condition_name
from speedrunner.experiments.status import run_status
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
    hours: float | None = 0.0
    usd: float | None = 0.0
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
        costs, actor = run_costs(source, book), source.processes[-1].actor
        share = outline.episodes / len(source.episodes)
        hours = _plus(hours, costs.engine_s, share * actor.gpus * actor.replicas / 3600)
        usd = _plus(usd, None if costs.unpriced else costs.total.usd, share)
    if not sources:
        return None
    amounts = f"GPU-hours: {short_number(hours)}, USD: {short_number(usd)}"
    return f"{amounts}, scaled by episodes from {', '.join(sources)}."


def _plus(total: float | None, amount: float | None, factor: float) -> float | None:
    return None if total is None or amount is None else total + amount * factor
