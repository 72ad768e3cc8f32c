"""`speedrunner plot`: learning curves on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speedrunner.cli.command import plain_console
from speedrunner.console import visible

if TYPE_CHECKING:
    from speedrunner.costs.checkpoints import CheckpointRow

MEASURES: dict[str, tuple[str, Callable[[CheckpointRow], float | None]]] = {
    "score": ("{:.3f}", lambda row: row.score),
    "LLM calls per test episode": ("{:.1f}", lambda row: row.llm_calls),
    "output tokens": ("{:.0f}", lambda row: row.output),
    "uncached tokens": ("{:.0f}", lambda row: row.uncached),
    "cached tokens": ("{:.0f}", lambda row: row.cached),
    "USD": ("{:.6f}", lambda row: row.cost),
}
"""What is drawn, each with how its numbers are written; all are means over the test episodes."""

BAR = 40
"""Characters of the longest bar."""

EIGHTHS = " ▏▎▍▌▋▊▉"


def plot(runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")]) -> None:
    """Draw what the test episodes of runs came to at each checkpoint: score, calls, tokens by class, USD.

    Example: speedrunner plot runs/demo
    """
    from speedrunner.costs.checkpoints import checkpoint_rows
    from speedrunner.costs.ledger import run_costs
    from speedrunner.costs.pricing import price_book
    from speedrunner.runs.identity import remarks
    from speedrunner.store.data import load

    loaded = [load(path) for path in dict.fromkeys(runs)]
    found: dict[str, list[CheckpointRow]] = {}
    for run in loaded:  # one after the other, as ledgers are large
        (costs,) = run_costs([run], [price_book(run)])
        found[str(run.path)] = checkpoint_rows(run, costs)
    console = plain_console()
    for line in (*curves(found), *remarks(process for run in loaded for process in run.processes)):
        console.print(visible(line), soft_wrap=True)


def curves(runs: Mapping[str, Sequence[CheckpointRow]]) -> Iterator[str]:
    """The lines of all curves: a block for each measure, in it each run by name, if there are several."""
    for measure, (form, value) in MEASURES.items():
        values = {name: {row.rollouts: value(row) for row in rows} for name, rows in runs.items()}
        most = max((each or 0.0 for own in values.values() for each in own.values()), default=0.0)
        yield measure
        for name, own in values.items():
            if len(runs) > 1:
                yield f"  {name}"
            for rollouts, each in own.items():
                told = "not known" if each is None else f"{_bar(each, most)} {form.format(each)}"
                yield f"  {rollouts:5} {told}"


def _bar(value: float, most: float) -> str:
    """A bar as long as a value's share of the greatest."""
    eighths = round(8 * BAR * value / most) if most else 0
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
