"""`speedrunner cost`: the cost of finished and unfinished runs, at any price list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import PriceList
from speedrunner.cli.output import say
from speedrunner.results import cost_text
from speedrunner.results.ledger import engine_seconds, run_costs
from speedrunner.results.means import frame_checkpoints
from speedrunner.results.pricing import RuleName, price_book, price_caveats
from speedrunner.results.writing import list_rows
from speedrunner.store.process_notes import caveats, process_lines
from speedrunner.store.run_data import load


def cost(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    prices: PriceList = None,
    cache_rule: Annotated[
        RuleName,
        typer.Option(
            help="Prompt tokens at the price of cached ones: engine: those that it took from its cache; cold:"
            " those that the same episode left there; provider: whole steps of the list's provider."
        ),
    ] = "engine",
) -> None:
    """Price runs by role, class of tokens and checkpoint.

    Runs may be unfinished. Name all runs that shared a server (a sweep) to count its time once.

    Example: speedrunner cost runs/demo --prices gpt-5.4-mini
    """
    loaded = [load(path) for path in dict.fromkeys(runs)]
    costs = [run_costs(run, price_book(run, prices, cache_rule)) for run in loaded]
    engine_s = engine_seconds(run.requests for run in loaded)
    for run, one in zip(loaded, costs, strict=True):
        points = list_rows(frame_checkpoints(run, one))
        say(f"{run.path}, prices: {cost_text.price_text(one.book)}", "", *cost_text.cost_lines(one))
        if points:
            say("", *cost_text.checkpoint_lines({"": points}), "")
            say(cost_text.checkpoint_notes(points, [one.book]))
        say(*price_caveats(one.book, run.processes), *process_lines(run.processes), "")
    if len(loaded) > 1:
        usd = sum(each.total.usd or 0.0 for each in costs)
        say(f"All runs: {f'{usd:.6f} USD. ' * (usd > 0)}{cost_text.engine_line(engine_s)}")
    say(*caveats(loaded))
