"""A run's checkpoints and accounts as people read them at its end."""

from __future__ import annotations

from rich import box
from rich.table import Table

from serving.balance import Balance
from serving.engine.metrics import Counters
from serving.usage import Prices
from speedrunner.costs.checkpoints import CheckpointRow
from speedrunner.costs.rollout_costs import RolePrices

COLUMNS = (
    "rollouts",
    "score",
    "test\nepisodes",
    "LLM\ncalls",
    "uncached\ntokens",
    "cached\ntokens",
    "output\ntokens",
    "USD per\nepisode",
    "USD per\nrollout",
    "skills",
)
"""Headings in two lines, so that a table fits into 80 characters."""


def checkpoint_table(rows: list[CheckpointRow]) -> Table:
    """One line per checkpoint; `notes` explains the columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, collapse_padding=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.rollouts),
            "-" if row.score is None else f"{row.score:.3f}",
            f"{row.episodes}" + (f" (-{row.unscored})" if row.unscored else ""),
            f"{row.llm_calls:.1f}",
            f"{row.uncached:.0f}",
            f"{row.cached:.0f}",
            f"{row.output:.0f}",
            f"{row.cost:.6f}",
            "-" if row.rollout_cost is None else f"{row.rollout_cost:.6f}",
            f"{row.public}/{row.skills}",
        )
    return table


def notes(rows: list[CheckpointRow], prices: RolePrices) -> str:
    """What the columns of `checkpoint_table` mean."""
    unscored = sum(row.unscored for row in rows)
    left_out = (
        f" {unscored} test episodes (-n) ended by a fault of ours and have no score." if unscored else ""
    )
    return (
        "Score, LLM calls, tokens (uncached and cached prompt, output) and USD per episode are means over the"
        f" test episodes.{left_out} USD per rollout: the training rollouts since the checkpoint before, with"
        " their share of the sleeps. Skills: public/all."
        f" USD per million tokens: {_price_list(prices.actor)}"
        + ("." if prices.actor == prices.others else f"; of the sleeps: {_price_list(prices.others)}.")
    )


def _price_list(prices: Prices) -> str:
    return f"{prices.uncached:g} uncached, {prices.cached:g} cached, {prices.output:g} output"


def account_line(balance: Balance) -> str:
    """The ledger's sums beside the engine's counters, and what is to be thought of the difference."""
    ledger, engine = balance.ledger, balance.engine
    sums = (
        f"prompt {ledger.prompt} / {engine.prompt}, cached {ledger.cached} / {engine.cached},"
        f" generated {ledger.generated} / {engine.generated}"
    )
    rest, most = balance.residual, balance.at_most
    cut_off = (
        f"{balance.unreported} requests were cut off before their tokens were told; the engine counted for"
        f" them {rest.prompt} prompt and {rest.generated} generated tokens, at most {most.prompt} and"
        f" {most.generated} being possible"
    )
    if rest == Counters():
        verdict = "they agree to the token"
    elif balance.agrees:
        verdict = cut_off
    elif balance.ours:
        verdict = "they DIFFER, which is a defect: please report it" + (
            f" ({cut_off})" if balance.unreported else ""
        )
    else:
        verdict = "they differ, as can be: the engine is not ours, and may have served others too"
    return f"Tokens of {balance.model} by ledger / by engine: {sums}: {verdict}."
