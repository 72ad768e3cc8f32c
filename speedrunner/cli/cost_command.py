"""`speedrunner cost`: the cost of finished and unfinished runs, at any price list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from speedrunner.cli.command import AsJson
from speedrunner.cli.output import say, say_json, terminal_width
from speedrunner.results import cost_text
from speedrunner.results.engine_time import stored_reconciliations
from speedrunner.results.ledger import RunCosts, run_costs
from speedrunner.results.means import frame_checkpoints
from speedrunner.results.pricing import price_book
from speedrunner.results.writing import list_rows
from speedrunner.store.process_notes import caveats, process_lines
from speedrunner.store.run_data import RunData, load


def cost(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A file of configs/prices, model (the model configs' own lists) or "
            "gpu-hours. Default:"
            " the run's own list.",
            show_default=False,
        ),
    ] = None,
    gpu_hour: Annotated[
        float | None,
        typer.Option(min=0, metavar="USD", help="Price of one GPU for one hour, for --prices gpu-hours."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Price runs by role, class of tokens and checkpoint.

    Runs may be unfinished. Name all runs that shared a server (a sweep) to split its time among them.

    Example: speedrunner cost runs/demo --prices gpt-5.4-mini
    """
    loaded = [load(path) for path in dict.fromkeys(runs)]
    costs = run_costs(loaded, [price_book(run, prices, gpu_hour) for run in loaded])
    reconciliations = stored_reconciliations(loaded)
    found = [
        (run, one, list_rows(frame_checkpoints(run, one))) for run, one in zip(loaded, costs, strict=True)
    ]
    if as_json:
        say_json({"runs": [_to_mapping(*each) for each in found], "reconciliations": reconciliations})
        return
    width = terminal_width()
    for run, one, points in found:
        say(f"{run.path}, prices: {cost_text.price_text(one.book)}", "", *cost_text.cost_lines(one, width))
        if points:
            say("", *cost_text.checkpoint_lines({"": points}, width), "")
            say(cost_text.notes(points, [one.book]))
        say(*process_lines(run.processes), "")
    if len(loaded) > 1:
        say(*cost_text.total_lines([str(run.path) for run in loaded], costs, width))
    say(
        cost_text.reconciliation_text(reconciliations),
        *caveats(each for run in loaded for each in run.processes),
    )


def _to_mapping(run: RunData, costs: RunCosts, checkpoints: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of `--json` for a run."""
    return {
        "run": str(run.path),
        "prices": costs.book,
        "changes": [change for process in run.processes for change in process.changes],
        "roles": costs.roles,
        "phases": [
            {"phase": phase, "policy": policy, **msgspec.structs.asdict(line)}
            for (phase, policy), line in costs.checkpoints.items()
        ],
        "total": costs.total,
        "cache_share": costs.total.cache_share,
        "checkpoints": checkpoints,
        "unpriced": costs.unpriced,
    }
