"""`speedrunner compare` and `cost`: learning curves of runs, their differences, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated

import typer

from speedrunner.cli.command import Notes, PriceList
from speedrunner.cli.output import say
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import align_columns
from speedrunner.results import pairing
from speedrunner.results.break_even import break_even
from speedrunner.results.cost_text import (
    checkpoint_lines,
    checkpoint_notes,
    cost_lines,
    engine_line,
    limit_lines,
    price_text,
)
from speedrunner.results.frames import frame_sleeps
from speedrunner.results.inference import CONFIDENCE, Estimate
from speedrunner.results.ledger import engine_seconds, run_costs
from speedrunner.results.means import MEASURES, add_costs, frame_checkpoints
from speedrunner.results.pairing import Comparison
from speedrunner.results.pricing import RuleName, engine_check, price_book, price_caveats
from speedrunner.results.run_result import frame_run
from speedrunner.results.writing import list_rows
from speedrunner.store.process_notes import caveats, process_lines
from speedrunner.store.run_data import load

HEAD = ("", "", "mean", "interval", "against A", "its interval", "pairs")
MORE = "What the columns mean, prices and changes of code: --notes"


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directories. Each is compared with the first."),
    ],
    prices: PriceList = None,
    notes: Notes = False,
) -> None:
    """Print learning curves of runs and compare each run with the first.

    The table of checkpoints has means over test episodes; USD include a rollout's share of the sleeps. A
    second table follows for several runs: scores, tokens, USD of the test episodes alone (test USD) and their
    differences, paired by test task, at the checkpoints that all runs have finished.

    Example: speedrunner compare runs/react runs/speedrunner
    """
    paths = [path.resolve() for path in runs]
    if twice := next((path for place, path in enumerate(runs) if path.resolve() in paths[:place]), None):
        raise InvalidConfig(f"{twice} is named twice: name each run once")
    loaded = [load(path) for path in runs]
    if len(loaded) > len(ascii_uppercase):
        raise InvalidConfig(f"{len(loaded)} runs at once: name at most {len(ascii_uppercase)}")
    books = [price_book(run, prices) for run in loaded]
    costs = [run_costs(run, book) for run, book in zip(loaded, books, strict=True)]
    framed = [frame_run(run, priced) for run, priced in zip(loaded, costs, strict=True)]
    points = {
        side.path: list_rows(add_costs(run, side.episodes, frame_sleeps(run, priced)))
        for side, run, priced in zip(framed, loaded, costs, strict=True)
    }
    if not any(points.values()):
        say("no test episode is finished yet")
        return
    found = pairing.compare(framed) if len(framed) > 1 else None  # refuses before anything is printed
    say(*checkpoint_lines(points))
    explained = [checkpoint_notes([row for rows in points.values() for row in rows], books)]
    explained += [
        f"{run.path}: {line}" for run, own in zip(loaded, costs, strict=True) for line in limit_lines(own)
    ]
    if found is None:
        (run,) = loaded
        say(*process_lines(run.processes), *caveats([run]), "", *(explained if notes else [MORE]))
        return
    names = {side.path: letter for side, letter in zip(framed, ascii_uppercase, strict=False)}
    explained.append(
        f"Means over test tasks, with {CONFIDENCE:.0%} intervals over tasks. Against A: differences"
        " by task, over the tasks that both played. Tokens (uncached and cached prompt, output) and USD are"
        " of test episodes; `speedrunner cost` shows those of rollouts and sleeps."
    )
    priced = zip(names.items(), books, strict=True)
    say("", *(f"{letter}: {path}, prices: {price_text(book)}" for (path, letter), book in priced))
    explained += found.details
    say("", *_table(found, names), "", *found.notes, *(explained if notes else [MORE]))


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
    loaded = [load(path) for path in dict.fromkeys(runs)]
    costs = [run_costs(run, price_book(run, prices, cache_rule)) for run in loaded]
    engine_s = engine_seconds(run.columns for run in loaded)
    for run, one in zip(loaded, costs, strict=True):
        checkpoints = frame_checkpoints(run, one)
        points, repaid = list_rows(checkpoints), break_even([checkpoints])
        say(f"{run.path}, prices: {price_text(one.book)}", "", *cost_lines(one))
        if points:
            say("", *checkpoint_lines({"": points}), "")
            say(checkpoint_notes(points, [one.book]))
        if repaid:
            say(
                f"Break-even: the sleeps cost {repaid.spent:.6f} USD, and an episode costs {repaid.saved:.6f}"
                f" USD less than at the first checkpoint. Test episodes until they are repaid: {repaid}."
            )
        say(*engine_check(one.book, one.total.usd, run.processes))
        say(*price_caveats(one.book, run.processes), *process_lines(run.processes), "")
    if len(loaded) > 1:
        usd = sum(each.total.usd or 0.0 for each in costs)
        say(f"All runs: {f'{usd:.6f} USD. ' * (usd > 0)}{engine_line(engine_s)}")
    say(*caveats(loaded))


def _table(found: Comparison, names: dict[str, str]) -> Iterator[str]:
    """Yield the comparison as a table, with a heading for each checkpoint."""
    rows, above = [HEAD], list[list[str]]()
    point, metric = None, ""
    titles = {each.name: (each.short_title, each.digits) for each in MEASURES}
    for row in found.rows:
        above.append([] if row.rollouts == point else ["", f"after {row.rollouts} rollouts"])
        title, digits = titles[row.metric]
        title = "" if (row.rollouts, row.metric) == (point, metric) else title
        pairs = str(row.difference.count) if row.difference else ""
        means = _cells(row.mean, digits)
        rows.append((title, names[row.run], *means, *_cells(row.difference, digits, "+"), pairs))
        point, metric = row.rollouts, row.metric
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
