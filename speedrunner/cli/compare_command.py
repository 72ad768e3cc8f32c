"""`speedrunner compare`: learning curves, and differences between runs at each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated

import typer

from speedrunner.cli.bar_charts import BLOCKS, Plotted, draw_curves
from speedrunner.cli.command import AsJson, PriceList
from speedrunner.cli.output import SafeConsole, say, say_broken_records, say_json
from speedrunner.config.schema import InvalidConfig
from speedrunner.results import comparison
from speedrunner.results.checkpoints import frame_checkpoints
from speedrunner.results.comparison import Comparison
from speedrunner.results.cost_text import limit_text, price_text
from speedrunner.results.inference import CONFIDENCE, Estimate
from speedrunner.results.ledger import run_costs
from speedrunner.results.plain_rows import list_rows
from speedrunner.results.pricing import GPU_HOURS, price_book
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import load

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
            metavar="RUN...", help="Run directories. Each is compared with the first.", show_default=False
        ),
    ],
    prices: PriceList = None,
    as_json: AsJson = False,
) -> None:
    """Draw learning curves of runs and compare each run with the first.

    Curves are means over the test episodes of each checkpoint. A table follows for several runs: scores,
    tokens, USD and their differences, paired by test task, at the checkpoints that all runs have finished.
    --json prints the table.

    Example: speedrunner compare runs/react runs/speedrunner
    """
    if prices == GPU_HOURS:
        raise InvalidConfig(
            f"--prices {GPU_HOURS} is for `speedrunner cost`: here runs are priced by the token"
        )
    loaded = [load(path, skip_broken=True) for path in {path.resolve(): path for path in runs}.values()]
    if len(loaded) > len(ascii_uppercase):
        raise InvalidConfig(f"{len(loaded)} runs at once: name at most {len(ascii_uppercase)}")
    books = [price_book(run, prices) for run in loaded]
    costs = [run_costs([run], [book])[0] for run, book in zip(loaded, books, strict=True)]
    if as_json:
        say_json(comparison.compare(loaded, costs))
        say_broken_records(loaded)
        return
    plotted = {
        str(run.path): Plotted(list_rows(frame_checkpoints(run, priced)), run.settings.run.test_episodes)
        for run, priced in zip(loaded, costs, strict=True)
    }
    say_broken_records(loaded)
    say(*draw_curves(plotted, BLOCKS if SafeConsole().encoding.startswith("utf") else "#"))
    if len(loaded) == 1:
        (only,) = plotted.values()
        say(*filter(None, [limit_text(only.rows).strip()]), *caveats(loaded[0].processes))
        return
    found = comparison.compare(loaded, costs)
    names = {str(run.path): letter for run, letter in zip(loaded, ascii_uppercase, strict=False)}
    about = (
        f"Means over test tasks, with {CONFIDENCE:.0%} bootstrap intervals over tasks. Against A: differences"
        " by task, over the tasks that both played. Tokens (uncached and cached prompt, output) and USD are"
        " of test episodes; `speedrunner cost` shows those of rollouts and sleeps. by limit: the share of the"
        " test episodes that a limit ended, in all and for each limit."
    )
    priced = zip(names.items(), books, strict=True)
    say("", *(f"{letter}: {path}, prices: {price_text(book)}" for (path, letter), book in priced))
    say("", *_table(found, names), "", about, *found.notes)


def _table(found: Comparison, names: dict[str, str]) -> Iterator[str]:
    """Yield the comparison as a table of 80 columns, unless numbers are too long."""
    yield _FORMAT.format("", "", "mean", "interval", "against A", "interval", "pairs").rstrip()
    point, metric = None, ""
    for row in found.rows:
        if row.rollouts != point:
            yield f"\nafter {row.rollouts} rollouts"
        title, digits = SHOWN[row.metric]
        title = "" if (row.rollouts, row.metric) == (point, metric) else title
        pairs = row.difference.count if row.difference else ""
        cells = *_cells(row.mean, digits), *_cells(row.difference, digits, "+"), pairs
        if metric == "score" != row.metric:
            yield from _limited(found, names, row.rollouts)
        yield _FORMAT.format(title, names[row.run], *cells).rstrip()
        point, metric = row.rollouts, row.metric


def _limited(found: Comparison, names: dict[str, str], rollouts: int) -> Iterator[str]:
    """Yield the lines below the scores of a checkpoint: the share of test episodes that limits ended."""
    title = "by limit"
    for each in found.limits:
        if each.rollouts == rollouts:
            by_limit = ", ".join(f"{name} {share:.0%}" for name, share in each.shares.items())
            share = f"{sum(each.shares.values()):.0%}"
            yield f"{title:9} {names[each.run]:1} {share:>8} {by_limit}".rstrip()
            title = ""


def _cells(estimate: Estimate | None, digits: int, sign: str = "") -> tuple[str, str]:
    """Return the mean and its interval."""
    if estimate is None:
        return "-", ""
    low, high = estimate.low, estimate.high
    span = "" if low is None or high is None else f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}"
    return f"{estimate.mean:{sign}.{digits}f}", span
