"""`speedrunner cost`: what finished and unfinished runs cost, at any price list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from speedrunner.cli.command import AsJson, plain_console
from speedrunner.console import json_text, visible

if TYPE_CHECKING:
    from speedrunner.results.ledger import RunCosts
    from speedrunner.store.data import RunData


def cost(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A file of configs/prices (card: the model cards' own lists), or gpu-hours; by default the"
            " run's own list.",
            show_default=False,
        ),
    ] = None,
    gpu_hour: Annotated[
        float | None,
        typer.Option(min=0, metavar="USD", help="Price of one GPU for one hour, for --prices gpu-hours."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Price runs from their ledgers, finished or not: per role, per class of tokens, per checkpoint.

    Name runs together that shared a server (a sweep): its time is then split among them.

    Example: speedrunner cost runs/demo --prices gpt-5.4-mini
    """
    from speedrunner.results import cost_text
    from speedrunner.results.accounts import stored_accounts
    from speedrunner.results.checkpoints import frame_checkpoints
    from speedrunner.results.ledger import run_costs
    from speedrunner.results.plain_rows import list_rows
    from speedrunner.results.pricing import price_book
    from speedrunner.store.data import load
    from speedrunner.store.processes import process_lines, remarks

    loaded = [load(path) for path in dict.fromkeys(runs)]
    costs = run_costs(loaded, [price_book(run, prices, gpu_hour) for run in loaded])
    accounts = stored_accounts(loaded)
    found = [
        (run, one, list_rows(frame_checkpoints(run, one))) for run, one in zip(loaded, costs, strict=True)
    ]
    if as_json:
        content = {"runs": [_content(*each) for each in found], "accounts": accounts}
        typer.echo(json_text(content))
        return
    console = plain_console()
    for run, one, points in found:
        for line in (f"{run.path}, prices: {cost_text.price_text(one.book)}", "", *cost_text.cost_lines(one)):
            typer.echo(visible(line))
        if points:
            console.print(cost_text.checkpoint_table({"": points}))
            console.print(cost_text.notes(points, [one.book]), soft_wrap=True)
        for line in process_lines(run.processes):
            typer.echo(visible(line))
        typer.echo("")
    if len(loaded) > 1:
        for line in cost_text.total_lines([str(run.path) for run in loaded], costs):
            typer.echo(visible(line))
    for line in (
        cost_text.accounts_text(accounts),
        *remarks(each for run in loaded for each in run.processes),
    ):
        typer.echo(visible(line))


def _content(run: RunData, costs: RunCosts, checkpoints: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` tells of a run."""
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
