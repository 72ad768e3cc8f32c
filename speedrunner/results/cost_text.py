"""Costs of runs as text for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from serving.meter import Reconciliation
from serving.usage import Counters
from speedrunner.plain.console import align_columns
from speedrunner.results.ledger import Classes, RunCosts, Spend
from speedrunner.results.pricing import PriceBook
from speedrunner.results.writing import caption
from speedrunner.store.episode_summary import MANY_REPEATS

HEAD = ("requests", "cached", "computed", "reasoning", "action", "USD")

NOT_MEASURED = "not measured"

REPEATS_NOTE = (
    "A repeated call is the call before, with the same result. run.stop_after_repeats=N ends an episode after"
    " N of them."
)


def _or_dash(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


Row = Mapping[str, Any]
"""A checkpoint, by the columns of `frame_checkpoints`."""

COLUMNS: dict[str, Callable[[Row], str]] = {
    "roll-\nouts": lambda row: str(row["checkpoint"]),
    "score": lambda row: _or_dash(row["score"], 3),
    "cut": lambda row: f"{row['limited']:.0%}",
    "re-\npeated": lambda row: f"{share_repeated(row):.0%}",
    "test\nepisodes": lambda row: (
        f"{row['episodes']}"
        + ("" if row["complete"] else f"/{row['planned']}")
        + (f" (-{row['unscored']})" if row["unscored"] else "")
    ),
    "LLM\ncalls": lambda row: _or_dash(row["llm_calls"], 1),
    "uncached\ntokens": lambda row: _or_dash(row["uncached"], 0),
    "cached\ntokens": lambda row: _or_dash(row["cached"], 0),
    "output\ntokens": lambda row: _or_dash(row["output"], 0),
    "USD per\nepisode": lambda row: _or_dash(row["cost_usd"], 6),
    "USD per\nrollout": lambda row: _or_dash(row["rollout_usd"], 6),
    "skills": lambda row: (
        "notes" if row["notes"] and not row["skills"] else f"{row['public']}/{row['skills']}"
    ),
}
"""Columns of the table of checkpoints. Headings have two lines, so that the table fits into 80 characters."""


COUNTED = ("roll-\nouts", "test\nepisodes")
"""Columns that an unfinished evaluation has, too. Its means are not shown: fast episodes finish first."""


def cost_lines(costs: RunCosts) -> list[str]:
    """Return the breakdown per role and per class, and the share of cached prompt tokens."""
    total = costs.total
    rows = [
        ("role", *HEAD),
        *(_cells(role, line) for role, line in costs.roles.items()),
        _cells("all", total),
    ]
    rows.append(_format_cells("wasted", "", total.wasted, total.wasted_usd))
    if total.usd == 0:  # no prices
        rows = [row[:-1] for row in rows]
    elif (usd := total.usd_by_class) is not None:
        *classes, requests = (f"{amount:.6f}" for amount in astuple(usd))
        rows.append(("USD", requests if usd.requests else "", *classes, f"{usd.total:.6f}"))
    lines = [*align_columns(rows), *limit_lines(costs)]
    if costs.book.prices is None:
        lines.append(f"USD: {NOT_MEASURED} (no prices are known).")
    return [*lines, "", _cache(total)]


def busy_line(seconds: float) -> str:
    """Return the result of `busy_seconds` as text."""
    return f"Engine time: {seconds:.1f} s with at least one request in flight."


def limit_lines(costs: RunCosts) -> list[str]:
    """Return lines about truncated requests and about reasoning that ended at its budget; empty if there are
    none."""
    lines, total = [], costs.total
    if total.unreported:
        lines.append(
            f"{total.unreported} requests were cut off before their tokens were reported, and are not in"
            " these sums."
        )
    cut = [
        f"{line.thought_cut} of {line.answers} of {role} ({line.thought_cut_share:.0%})"
        for role, line in costs.roles.items()
        if line.thought_cut
    ]
    if cut:
        lines.append(f"Answers whose reasoning ended at its budget: {', '.join(cut)}.")
    return lines


def checkpoint_lines(runs: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return a line per checkpoint, with the run's name if there are several runs; `checkpoint_notes`
    explains the columns.
    """
    names = len(runs) > 1
    repeats = any(share_repeated(row) > MANY_REPEATS for rows in runs.values() for row in rows)
    usd = {row["cost_usd"] for rows in runs.values() for row in rows} - {None}
    hidden = ["re-\npeated"] * (not repeats)
    hidden += [name for name in COLUMNS if name.startswith("USD") and usd == {0}]  # no prices
    columns = {name: text for name, text in COLUMNS.items() if name not in hidden}
    lines = [["run"] * names + [*columns]]
    for name, rows in runs.items():
        for number, row in enumerate(rows):
            known = columns if row["complete"] else COUNTED
            cells = [text(row) if title in known else "-" for title, text in columns.items()]
            lines.append([name if number == 0 else ""] * names + cells)
    return align_columns(lines, left=int(names)) + [REPEATS_NOTE] * repeats


def share_repeated(row: Row) -> float:
    """Return the share of a checkpoint's calls that repeat the one before; 0 if unknown."""
    return (row["repeated_calls"] or 0.0) / row["llm_calls"] if row["llm_calls"] else 0.0


def checkpoint_notes(rows: Sequence[Row], books: Sequence[PriceBook]) -> str:
    """Explain the columns of `checkpoint_lines`, and list the prices of its runs."""
    unscored, silent = (sum(row[name] for row in rows) for name in ("unscored", "silent"))
    left_out = ""
    if unscored:
        left_out = f" {unscored} test episodes (-n) ended by an infrastructure error and have no score."
    if silent:
        left_out += f" {silent} sent no request: their score counts, their calls, tokens and USD do not."
    prices = "; or ".join(dict.fromkeys(map(price_text, books)))
    return caption("checkpoints", left_out=left_out, prices=prices)


def price_text(book: PriceBook) -> str:
    """Return the prices."""
    if (prices := book.prices) is None:
        return f"{book.title}; none is known"
    return (
        f"{book.title}; {prices.uncached:g} uncached, {prices.cached:g} cached, {prices.output:g} output"
        " (USD per million tokens)"
        + f", {prices.requests:g} per million requests" * bool(prices.requests)
        + f", {prices.attention:g} per million output tokens and thousand of context" * bool(prices.attention)
    )


def reconciliation_line(reconciliation: Reconciliation) -> str:
    """Return the ledger's sums, the engine's counters, and an assessment of the difference."""
    ledger, engine = reconciliation.ledger, reconciliation.engine
    sums = (
        f"prompt {ledger.prompt} / {engine.prompt}, cached {ledger.cached} / {engine.cached},"
        f" generated {ledger.generated} / {engine.generated}"
    )
    rest, most = reconciliation.residual, reconciliation.at_most
    cut_off = caption("cut_off", unreported=reconciliation.unreported, rest=rest, most=most)
    if rest == Counters():
        verdict = "they agree to the token"
    elif reconciliation.agrees:
        verdict = cut_off
    elif reconciliation.ours:
        verdict = "they DIFFER, which is a defect: please report it" + (
            f" ({cut_off})" if reconciliation.unreported else ""
        )
    else:
        verdict = "they differ: SpeedRunner did not start the engine, which may have served others too"
    return f"Tokens of {reconciliation.model} by ledger / by engine: {sums}: {verdict}."


def _cells(name: str, line: Spend) -> tuple[str, ...]:
    return _format_cells(name, str(line.requests), line.tokens, line.usd)


def _format_cells(name: str, requests: str, tokens: Classes, usd: float | None) -> tuple[str, ...]:
    classes = (f"{n:.0f}" for n in astuple(tokens))
    return (name, requests, *classes, _or_dash(usd, 6))


def _cache(total: Spend) -> str:
    if total.cache_share is None:
        cached, prompt = total.tokens.cached, total.tokens.cached + total.tokens.computed
        return (
            f"Prefix cache: {cached:.0f} of {prompt:.0f} prompt tokens came from the cache, as reported"
            f" ({cached / max(prompt, 1):.2%}); how many could have is not known."
        )
    return (
        f"Prefix cache: {total.from_cache} of {total.cacheable} cacheable prompt tokens came from the"
        f" cache: {total.cache_share:.2%}."
    )
