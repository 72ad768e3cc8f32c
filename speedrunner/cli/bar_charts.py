"""Learning curves as bars on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

MEASURES = {
    "score": ("score", "{:.3f}"),
    "llm_calls": ("LLM calls per test episode", "{:.1f}"),
    "output": ("output tokens", "{:.0f}"),
    "uncached": ("uncached tokens", "{:.0f}"),
    "cached": ("cached tokens", "{:.0f}"),
    "cost_usd": ("USD per episode", "{:.6f}"),
}
"""Columns of a checkpoint that are drawn, with their titles and the format of their numbers."""

BAR, BESIDE = 40, 40
"""Characters of the longest bar, and of the texts in its line. A narrow terminal gets shorter bars."""

BLOCKS = "▏▎▍▌▋▊▉█"
"""Parts of a character, up to a whole one."""


@dataclass(frozen=True)
class Plotted:
    """A run's checkpoints, and how many test episodes a whole one has."""

    rows: Sequence[Mapping[str, Any]]
    whole: int


def draw_curves(runs: Mapping[str, Plotted], blocks: str = BLOCKS, width: float = inf) -> Iterator[str]:
    """Yield the lines of all curves: a block for each measure, with each run by name if there are several.

    Args:
        blocks: characters of a bar, from the smallest part to a whole one.
        width: columns of the terminal.
    """
    longest = int(max(min(width - BESIDE, BAR), 1))
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
                bar = _bar(each or 0.0, most, blocks, longest)
                number = "not known" if each is None else form.format(each)
                part = f"({row['episodes']} of {run.whole} episodes)" if row["episodes"] < run.whole else ""
                yield " ".join(filter(None, (f"  {row['checkpoint']:5}", bar, number, part)))


def _bar(value: float, most: float, blocks: str, longest: int) -> str:
    """Return a bar as long as a value's share of the greatest, which takes `longest` characters."""
    parts = round(len(blocks) * longest * value / most) if most else 0
    whole, rest = divmod(parts, len(blocks))
    return blocks[-1] * whole + (blocks[rest - 1] if rest else "")
