"""What people are told of costs and accounts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from serving.meter import LedgerRow, Reconciliation
from serving.usage import Counters, Prices, Usage
from speedrunner.results.cost_text import (
    checkpoint_lines,
    checkpoint_notes,
    cost_lines,
    limit_lines,
    price_text,
    reconciliation_line,
)
from speedrunner.results.ledger import RunCosts, run_costs
from speedrunner.results.pricing import PriceBook
from tests.golden_tables import Golden, table
from tests.speedrunner.results.ledgers import BY_TOKEN, ROWS, row, stored

FIRST = {
    "checkpoint": 0,
    **{"episodes": 2, "planned": 2, "complete": True},
    "unscored": 1,
    "silent": 0,
    "limited": 0.5,
    "score": 0.5,
    "llm_calls": 1.0,
    "repeated_calls": 0.25,
    **{"uncached": 25.0, "cached": 90.0, "output": 15.0, "cost_usd": 0.00022, "rollout_usd": None},
    **{"public": 0, "skills": 0, "notes": False},
}
SECOND = FIRST | {
    **{"checkpoint": 2, "unscored": 0, "limited": 0.0, "score": 1.0},
    **{"uncached": 200.0, "cached": 800.0, "output": 10.0, "cost_usd": 0.0007, "rollout_usd": 0.003},
    **{"public": 1, "skills": 2},
}


def test_the_table_of_checkpoints_fits_into_eighty_columns_and_shows_every_number() -> None:
    lines = checkpoint_lines({"one": [FIRST, SECOND]})
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines if line.strip()][-2:] == [
        ["0", "0.500", "50%", "2", "(-1)", "1.0", "25", "90", "15", "0.000220", "-", "0/0"],
        ["2", "1.000", "0%", "2", "1.0", "200", "800", "10", "0.000700", "0.003000", "1/2"],
    ]


def test_an_unfinished_evaluation_shows_how_far_it_is_and_no_mean() -> None:
    lines = checkpoint_lines({"one": [FIRST, SECOND | {"complete": False, "planned": 20}]})
    assert lines[-1].split() == ["2", "-", "-", "2/20", *["-"] * 7]


def test_there_are_no_usd_without_prices(tmp_path: Path) -> None:
    free = [FIRST | {"cost_usd": 0.0}, SECOND | {"cost_usd": 0.0, "rollout_usd": 0.0}]
    for rows, columns in (([FIRST, *free], 2), (free, 0)):
        assert checkpoint_lines({"one": rows})[0].count("USD") == columns
    zero = PriceBook("zero", Prices(0, 0, 0))
    for book, count in ((BY_TOKEN, 2), (zero, 0)):
        run = stored(tmp_path / book.title, [*ROWS])
        assert "\n".join(cost_lines(run_costs(run, book))).count("USD") == count


def test_the_share_of_repeated_calls_is_next_to_the_score_where_it_is_large() -> None:
    few, many = (checkpoint_lines({"one": [FIRST | {"repeated_calls": share}]}) for share in (0.25, 0.5))
    assert [line.split()[:4] for line in (few[2], many[2])] == [
        ["0", "0.500", "50%", "2"],
        ["0", "0.500", "50%", "50%"],
    ]
    assert "run.stop_after_repeats=N" in many[-1]
    assert few[-1] == few[2]


def test_costs_with_engine_time_and_cache(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    cached = row(7.0, Usage(300, 200, 9, 4), cacheable=250, phase="test", policy="1")
    costs = run_costs(stored(tmp_path / "run", [*ROWS, cached]), BY_TOKEN)
    golden("costs.txt", "\n".join([*cost_lines(costs), ""]))


ENGINE = Counters(30, 20, 5)
ACCOUNTS = {
    "equal counts": (ENGINE, Counters(), True),
    "equal counts, with a bound of what was cut off": (ENGINE, Counters(9, 9, 9), False),
    "a token too many": (Counters(31, 20, 5), Counters(), True),
    "a token too many within the bound": (Counters(31, 20, 5), Counters(9, 9, 4), True),
    "ten tokens too many": (Counters(40, 20, 5), Counters(9, 9, 4), True),
    "a token too few": (Counters(29, 20, 5), Counters(9, 9, 4), True),
    "a token too many of another's engine": (Counters(31, 20, 5), Counters(), False),
}
"""What an engine counted, the most that was cut off, and whether the engine is ours."""


def account(engine: Counters, at_most: Counters, ours: bool) -> str:
    counts = {
        "ledger": ENGINE,
        "engine": engine,
        "at_most": at_most,
        "unreported": 2 if at_most != Counters() else 0,
    }
    return reconciliation_line(Reconciliation(model="m", since=0.0, time=0.0, ours=ours, **counts))


def test_notes_tell_prices_and_what_is_left_out_or_not_measured(tmp_path: Path, golden: Golden) -> None:
    def costs(name: str, *rows: LedgerRow) -> RunCosts:
        return run_costs(stored(tmp_path / name, [*rows]), BY_TOKEN)

    cut = msgspec.structs.replace(row(7.0, Usage(5, 0, 5)), thought_cut=True)
    unpriced = stored(tmp_path / "unpriced", ROWS[1:])
    texts = {
        "an unscored episode": checkpoint_notes([FIRST, SECOND], [BY_TOKEN]),
        "all episodes scored": checkpoint_notes([SECOND], [BY_TOKEN]),
        "prices": price_text(BY_TOKEN),
        "no prices": price_text(PriceBook("mine", None)),
        "costs without prices": "\n".join(cost_lines(run_costs(unpriced, PriceBook("mine", None)))),
        "a thought that was cut": "\n".join(cost_lines(costs("cut", *ROWS, cut))),
        "a request that was cut off": "\n".join(limit_lines(costs("usual", *ROWS))),
        "no request that was cut off": "\n".join(limit_lines(costs("whole", *ROWS[:2]))),
        **{f"account: {name}": account(*counts) for name, counts in ACCOUNTS.items()},
    }
    golden("cost_notes.txt", table(texts))
