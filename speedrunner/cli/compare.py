"""`speedrunner compare`: runs side by side, checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated

import typer

from speedrunner.cli.command import AsJson, PriceList
from speedrunner.console import json_text, visible

if TYPE_CHECKING:
    from speedrunner.results.comparison import Comparison
    from speedrunner.results.inference import Estimate

SHOWN = {
    "score": ("score", 3),
    "llm_calls": ("LLM calls", 1),
    "uncached": ("uncached", 0),
    "cached": ("cached", 0),
    "output": ("output", 0),
    "usd": ("USD", 6),
}
"""Each metric's name for people and its digits."""

_FORMAT = "{:9} {:1} {:>8} {:>20} {:>9} {:>22} {:>5}"


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN RUN...", help="Run directories; each is compared with the first.", show_default=False
        ),
    ],
    prices: PriceList = None,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side at each checkpoint: scores, tokens, USD, and differences paired by test task.

    Example: speedrunner compare runs/react runs/speedrunner
    """
    from speedrunner.config.schema import InvalidConfig
    from speedrunner.results import comparison
    from speedrunner.results.cost_text import price_text
    from speedrunner.results.inference import CONFIDENCE
    from speedrunner.results.ledger import run_costs
    from speedrunner.results.pricing import GPU_HOURS, price_book
    from speedrunner.store.data import load

    if prices == GPU_HOURS:
        raise InvalidConfig(
            f"--prices {GPU_HOURS} is for `speedrunner cost`: here runs are priced by the token"
        )
    loaded = [load(path) for path in dict.fromkeys(runs)]
    if len(loaded) > len(ascii_uppercase):
        raise InvalidConfig(f"{len(loaded)} runs at once: name at most {len(ascii_uppercase)}")
    books = [price_book(run, prices) for run in loaded]
    costs = [run_costs([run], [book])[0] for run, book in zip(loaded, books, strict=True)]
    found = comparison.compare(loaded, costs)
    if as_json:
        typer.echo(json_text(found))
        return
    names = {str(run.path): letter for run, letter in zip(loaded, ascii_uppercase, strict=False)}
    for (path, letter), book in zip(names.items(), books, strict=False):
        typer.echo(visible(f"{letter}: {path}, prices: {price_text(book)}"))
    about = (
        f"Means over test tasks, with {CONFIDENCE:.0%} bootstrap intervals over tasks. Against A: differences"
        " by task, over the tasks that both played. Tokens (uncached and cached prompt, output) and USD are"
        " of test episodes; `speedrunner cost` tells those of rollouts and sleeps."
    )
    for line in ("", *_lines(found, names), "", about, *found.notes):
        typer.echo(visible(line))


def _lines(found: Comparison, names: dict[str, str]) -> Iterator[str]:
    """The comparison as a table of 80 columns, where the numbers let it be."""
    yield _FORMAT.format("", "", "mean", "interval", "against A", "interval", "pairs").rstrip()
    point, metric = None, ""
    for row in found.rows:
        if row.rollouts != point:
            yield f"\nafter {row.rollouts} rollouts"
        title, digits = SHOWN[row.metric]
        title = "" if (row.rollouts, row.metric) == (point, metric) else title
        pairs = row.difference.count if row.difference else ""
        cells = *_cells(row.mean, digits), *_cells(row.difference, digits, "+"), pairs
        yield _FORMAT.format(title, names[row.run], *cells).rstrip()
        point, metric = row.rollouts, row.metric


def _cells(estimate: Estimate | None, digits: int, sign: str = "") -> tuple[str, str]:
    """The mean and its interval."""
    if estimate is None:
        return "-", ""
    low, high = estimate.low, estimate.high
    span = "" if low is None or high is None else f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}"
    return f"{estimate.mean:{sign}.{digits}f}", span
