"""`speedrunner compare` and `cost`: learning curves of runs, their differences, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated

import typer

from speedrunner.cli.command import PriceList
from speedrunner.cli.output import say
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import align_columns
from speedrunner.results import pairing
from speedrunner.results.break_even import break_even
from speedrunner.results.conditions import Condition
from speedrunner.results.cost_text import (
    busy_line,
    checkpoint_lines,
    checkpoint_notes,
    cost_lines,
    limit_lines,
    price_text,
)
from speedrunner.results.frames import frame_sleeps
from speedrunner.results.inference import CONFIDENCE, Estimate
from speedrunner.results.ledger import run_costs
from speedrunner.results.means import add_costs, frame_checkpoints
from speedrunner.results.pairing import Compared, note_code, note_run, split_conditions
from speedrunner.results.pricing import RuleName, busy_seconds, price_book, price_caveats
from speedrunner.results.run_result import frame_run
from speedrunner.results.writing import list_rows
from speedrunner.store.process_notes import caveats, process_lines
from speedrunner.store.run_data import RunData, load

HEAD = ("", "", "mean", "interval", "against A", "its interval", "pairs")
MORE = "Every checkpoint and run, what the columns mean, prices and changes of code: --all"


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directories. The first is what others are compared with."),
    ],
    prices: PriceList = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every checkpoint and run, and explain the numbers.")
    ] = False,
) -> None:
    """Compare conditions over seeds, or print the learning curve of one.

    Runs that differ only in their seed are one condition. The table has scores, tokens and USD of the test
    episodes alone (test USD) and their differences, paired by seed and test task, at the last checkpoint that
    all conditions have finished. USD of learning curves include a rollout's share of the sleeps.

    Example: speedrunner compare runs/react runs/speedrunner
    """
    loaded = _load_once(runs)
    costs = [run_costs(run, price_book(run, prices)) for run in loaded]
    framed = [frame_run(run, priced) for run, priced in zip(loaded, costs, strict=True)]
    sides = split_conditions(framed)
    if len(sides) > len(ascii_uppercase):
        raise InvalidConfig(f"{len(sides)} conditions at once: name at most {len(ascii_uppercase)}")
    found = pairing.compare(sides) if len(sides) > 1 else []  # refuses before anything is printed
    points = {
        side.path: list_rows(add_costs(run, side.episodes, frame_sleeps(run, priced)))
        for side, run, priced in zip(framed, loaded, costs, strict=True)
    }
    if not any(points.values()):
        say("no test episode is finished yet")
        return
    if everything or not found:
        say(*checkpoint_lines(points), "")
    if found:
        say(*_describe_sides(sides), "", *_table(found, sides, everything), "")
        say(*(line for run in framed for line in note_run(run, framed[0])))
    else:
        say(*(line for run in loaded for line in process_lines(run.processes)))
    say(*caveats(loaded))
    if not everything:
        say(MORE)
        return
    say("", checkpoint_notes([row for rows in points.values() for row in rows], [own.book for own in costs]))
    say(*(f"{run.path}: {line}" for run, own in zip(loaded, costs, strict=True) for line in limit_lines(own)))
    if found:
        say(
            f"Means over seeds and test tasks, with {CONFIDENCE:.0%} intervals. Against A: differences by"
            " seed and task, over those that both played. Tokens (uncached and cached prompt, output) and USD"
            " are of test episodes; `speedrunner cost` shows those of rollouts and sleeps.",
            *(line for run in framed[1:] if (line := note_code(run, framed[0]))),
        )


def _load_once(paths: Sequence[Path]) -> list[RunData]:
    """Load runs, each once, however its path is written."""
    return [load(path) for path in {path.resolve(): path for path in paths}.values()]


def _describe_sides(sides: Sequence[Condition]) -> Iterator[str]:
    """Yield a line for each condition: its letter, name and runs."""
    for letter, side in zip(ascii_uppercase, sides, strict=False):
        runs = ", ".join(f"{run.path} (seed {run.seed})" for run in side.runs.values())
        yield f"{letter}: {', '.join(side.names)}: {runs}"


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
    loaded = _load_once(runs)
    costs = [run_costs(run, price_book(run, prices, cache_rule)) for run in loaded]
    for run, one in zip(loaded, costs, strict=True):
        checkpoints = frame_checkpoints(run, one)
        points = list_rows(checkpoints)
        say(f"{run.path}, prices: {price_text(one.book)}", "", *cost_lines(one))
        say(busy_line(busy_seconds([run.columns])))
        if points:
            say("", *checkpoint_lines({"": points}), "")
            say(checkpoint_notes(points, [one.book]))
        if repaid := break_even([checkpoints]):
            say(repaid.describe())
        say("")
        say(*price_caveats(one.book, run.processes), *process_lines(run.processes), "")
    if len(loaded) > 1:
        usd = sum(each.total.usd or 0.0 for each in costs)
        busy_s = busy_seconds(run.columns for run in loaded)
        say(f"All runs: {f'{usd:.6f} USD. ' * (usd > 0)}{busy_line(busy_s)}")
    say(*caveats(loaded))


def _table(found: Sequence[Compared], sides: Sequence[Condition], everything: bool) -> Iterator[str]:
    """Yield the comparison as a table, with a heading for each checkpoint: the last one, or all, the last one
    first."""
    points = sorted({row.rollouts for row in found}, reverse=True)
    rows, above = [HEAD], list[list[str]]()
    for point in points if everything else points[:1]:
        heading = ["", f"after {point} rollouts"]
        for row in (row for row in found if row.rollouts == point):
            title = row.measure.short_title if row.side is sides[0] else ""
            means = _cells(row.mean, row.measure.digits)
            changes = _cells(row.difference, row.measure.digits, "+")
            pairs = str(row.difference.count) if row.difference else ""
            rows.append((title, ascii_uppercase[sides.index(row.side)], *means, *changes, pairs))
            above.append(heading)
            heading = []
    head, *lines = align_columns(rows, left=2)
    yield head
    for heading, line in zip(above, lines, strict=True):
        yield from (*heading, line)


def _cells(estimate: Estimate | None, digits: int, sign: str = "") -> tuple[str, str]:
    """Return the mean and its interval."""
    if estimate is None:
        return "-", ""
    low, high = estimate.low, estimate.high
    span = "" if low is None or high is None else f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}"
    return f"{estimate.mean:{sign}.{digits}f}", span
