"""`speedrunner plot`: learning curves on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from speedrunner.cli.command import plain_console
from speedrunner.console import visible

MEASURES = {
    "score": ("score", "{:.3f}"),
    "llm_calls": ("LLM calls per test episode", "{:.1f}"),
    "output": ("output tokens", "{:.0f}"),
    "uncached": ("uncached tokens", "{:.0f}"),
    "cached": ("cached tokens", "{:.0f}"),
    "actor_usd": ("USD", "{:.6f}"),
}
"""Columns that are drawn, with their titles and the format of their numbers; means over the test episodes."""

BAR = 40
"""Characters of the longest bar."""

BLOCKS = "▏▎▍▌▋▊▉█"
"""Parts of a character, up to a whole one."""


def plot(runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")]) -> None:
    """Draw what the test episodes of runs came to at each checkpoint: score, calls, tokens by class, USD.

    Example: speedrunner plot runs/demo
    """
    from speedrunner.results.checkpoints import frame_checkpoints
    from speedrunner.results.ledger import run_costs
    from speedrunner.results.plain_rows import list_rows
    from speedrunner.results.pricing import price_book
    from speedrunner.store.data import load
    from speedrunner.store.processes import remarks

    loaded = [load(path) for path in {path.resolve(): path for path in runs}.values()]
    found: dict[str, Plotted] = {}
    for run in loaded:  # one after the other, as ledgers are large
        (costs,) = run_costs([run], [price_book(run)])
        found[str(run.path)] = Plotted(
            list_rows(frame_checkpoints(run, costs)), run.settings.run.test_episodes
        )
    console = plain_console()
    blocks = BLOCKS if console.encoding.startswith("utf") else "#"
    for line in (*curves(found, blocks), *remarks(process for run in loaded for process in run.processes)):
        console.print(visible(line), soft_wrap=True)


@dataclass(frozen=True)
class Plotted:
    """A run's checkpoints, and how many test episodes a whole one has."""

    rows: Sequence[Mapping[str, Any]]
    whole: int


def curves(runs: Mapping[str, Plotted], blocks: str = BLOCKS) -> Iterator[str]:
    """The lines of all curves: a block for each measure, in it each run by name, if there are several.

    Args:
        blocks: characters of a bar, from the least part of one to a whole one.
    """
    if not any(run.rows for run in runs.values()):
        yield "no test episode is finished yet"
        return
    for measure, (title, form) in MEASURES.items():
        most = max(row[measure] or 0.0 for run in runs.values() for row in run.rows)
        yield title
        for name, run in runs.items():
            if len(runs) > 1:
                yield f"  {name}"
            for row in run.rows:
                each = row[measure]
                bar = _bar(each or 0.0, most, blocks)
                number = "not known" if each is None else form.format(each)
                part = f"({row['episodes']} of {run.whole} episodes)" if row["episodes"] < run.whole else ""
                yield " ".join(filter(None, (f"  {row['checkpoint']:5}", bar, number, part)))


def _bar(value: float, most: float, blocks: str) -> str:
    """A bar as long as a value's share of the greatest."""
    parts = round(len(blocks) * BAR * value / most) if most else 0
    whole, rest = divmod(parts, len(blocks))
    return blocks[-1] * whole + (blocks[rest - 1] if rest else "")
