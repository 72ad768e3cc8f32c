"""`speedrunner cost`: what finished and unfinished runs cost, at any price list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from speedrunner.cli.command import AsJson, plain_console
from speedrunner.console import visible

if TYPE_CHECKING:
    from speedrunner.costs.breakdown import Breakdown, Line
    from speedrunner.costs.pricing import PriceBook
    from speedrunner.costs.stored_accounts import StoredAccounts
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
    from speedrunner.costs.breakdown import breakdowns
    from speedrunner.costs.cost_table import account_text, cost_lines, total_lines
    from speedrunner.costs.pricing import price_book
    from speedrunner.store.data import load
    from speedrunner.store.rundir import RunDirectoryError

    loaded = [load(path) for path in dict.fromkeys(runs)]
    for run in loaded:
        if run.episodes and not run.requests:
            raise RunDirectoryError(f"{run.path} holds episodes and no ledger: is requests.jsonl missing?")
    books = [price_book(run, prices, gpu_hour) for run in loaded]
    found = breakdowns(loaded, books)
    accounts = _accounts(loaded)
    if as_json:
        each = [_run_json(*row) for row in zip(loaded, books, found, strict=True)]
        whole = {"runs": each, "accounts": _accounts_json(accounts)}
        typer.echo(msgspec.json.encode(whole).decode())
        return
    console = plain_console()
    for run, book, one in zip(loaded, books, found, strict=True):
        for line in (f"{run.path}, prices: {_price_text(book)}", "", *cost_lines(one)):
            typer.echo(visible(line))
        _show_checkpoints(run, book, console)
    if len(loaded) > 1:
        for line in total_lines([str(run.path) for run in loaded], found):
            typer.echo(visible(line))
    typer.echo(account_text(accounts))


def _accounts(runs: list[RunData]) -> StoredAccounts:
    from speedrunner.costs.stored_accounts import stored_accounts
    from speedrunner.store.labels import Labels

    models = []
    for run in runs:
        actors = (row.model for row in run.requests if Labels.of(row.labels).role == "actor")
        models.append(next(actors, run.requests[0].model if run.requests else ""))
    return stored_accounts(runs, models)


def _show_checkpoints(run: RunData, book: PriceBook, console: Console) -> None:
    """The run's own table, at these prices (paper, Appendix A.3)."""
    from speedrunner.costs.checkpoint_table import checkpoint_table, notes
    from speedrunner.costs.checkpoints import checkpoint_rows

    if book.roles is not None and (rows := checkpoint_rows(run, book.roles)):
        console.print(checkpoint_table(rows))
        console.print(notes(rows, book.roles), soft_wrap=True)
    typer.echo("")


def _price_text(book: PriceBook) -> str:
    lists = {
        model: f"{prices.uncached:g} uncached, {prices.cached:g} cached, {prices.output:g} output"
        for model, prices in book.models.items()
        if prices is not None
    }
    texts = [f"{book.name}"]
    if len(set(lists.values())) == 1:
        texts.append(f"{next(iter(lists.values()))} (USD per million tokens)")
    else:
        texts += [f"{model}: {text} (USD per million tokens)" for model, text in lists.items()]
    texts += [f"{model} on {gpus} GPU{'s' if gpus > 1 else ''}" for model, gpus in book.gpus.items()]
    return "; ".join(texts)


def _run_json(run: RunData, book: PriceBook, found: Breakdown) -> dict[str, Any]:
    from speedrunner.costs.checkpoints import checkpoint_rows

    return {
        "run": str(run.path),
        "prices": {
            "name": book.name,
            "models": msgspec.to_builtins(dict(book.models)),
            "gpus": dict(book.gpus),
            "gpu_hour_usd": book.gpu_hour_usd if book.gpus else None,
        },
        "roles": {role: _line_json(line) for role, line in found.roles.items()},
        "phases": [
            {"phase": phase, "policy": policy, **_line_json(line)}
            for (phase, policy), line in found.checkpoints.items()
        ],
        "total": _line_json(found.total),
        "cache": {**msgspec.to_builtins(found.cache), "share": found.cache.share},
        "checkpoints": None if book.roles is None else msgspec.to_builtins(checkpoint_rows(run, book.roles)),
        "unpriced": found.unpriced,
    }


def _line_json(line: Line) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(line)
    return content


def _accounts_json(accounts: StoredAccounts) -> dict[str, Any]:
    each = [{**msgspec.to_builtins(one), "equal": one.equal} for one in accounts.accounts]
    return {"equal": accounts.equal, "without": accounts.without, "accounts": each}
