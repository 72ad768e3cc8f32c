"""`speedrunner compare`: learning curves, and runs side by side at each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated

import typer

from speedrunner.cli.command import AsJson, PriceList, plain_console
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
            metavar="RUN...", help="Run directories; each is compared with the first.", show_default=False
        ),
    ],
    prices: PriceList = None,
    as_json: AsJson = False,
) -> None:
    """Draw learning curves of runs, and compare each with the first, paired by test task.

    Curves are means over the test episodes of each checkpoint. With several runs, a table follows: scores,
    tokens, USD and their differences at the checkpoints that all runs have finished. --json prints the table.

    Example: speedrunner compare runs/react runs/speedrunner
    """
    from speedrunner.cli.curves import BLOCKS, Plotted, draw_curves
    from speedrunner.config.schema import InvalidConfig
    from speedrunner.results import comparison
    from speedrunner.results.checkpoints import frame_checkpoints
    from speedrunner.results.cost_text import price_text
    from speedrunner.results.inference import CONFIDENCE
    from speedrunner.results.ledger import run_costs
    from speedrunner.results.plain_rows import list_rows
    from speedrunner.results.pricing import GPU_HOURS, price_book
    from speedrunner.store.data import load
    from speedrunner.store.processes import remarks

    if prices == GPU_HOURS:
        raise InvalidConfig(
            f"--prices {GPU_HOURS} is for `speedrunner cost`: here runs are priced by the token"
        )
    loaded = [load(path) for path in {path.resolve(): path for path in runs}.values()]
    if len(loaded) > len(ascii_uppercase):
        raise InvalidConfig(f"{len(loaded)} runs at once: name at most {len(ascii_uppercase)}")
    books = [price_book(run, prices) for run in loaded]
    costs = [run_costs([run], [book])[0] for run, book in zip(loaded, books, strict=True)]
    if as_json:
        typer.echo(json_text(comparison.compare(loaded, costs)))
        return
    console = plain_console()
    plotted = {
        str(run.path): Plotted(list_rows(frame_checkpoints(run, priced)), run.settings.run.test_episodes)
        for run, priced in zip(loaded, costs, strict=True)
    }
    blocks = BLOCKS if console.encoding.startswith("utf") else "#"
    notes = remarks(process for run in loaded for process in run.processes)
    for line in (*draw_curves(plotted, blocks), *(notes if len(loaded) == 1 else ())):
        console.print(visible(line), soft_wrap=True)
    if len(loaded) == 1:
        return
    found = comparison.compare(loaded, costs)
    typer.echo("")
    names = {str(run.path): letter for run, letter in zip(loaded, ascii_uppercase, strict=False)}
    for (path, letter), book in zip(names.items(), books, strict=False):
        typer.echo(visible(f"{letter}: {path}, prices: {price_text(book)}"))
    about = (
        f"Means over test tasks, with {CONFIDENCE:.0%} bootstrap intervals over tasks. Against A: differences"
        " by task, over the tasks that both played. Tokens (uncached and cached prompt, output) and USD are"
        " of test episodes; `speedrunner cost` shows those of rollouts and sleeps."
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
