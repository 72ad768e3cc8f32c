"""What people are told of costs and accounts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from serving.reconciliation import Reconciliation
from serving.usage import Counters, Prices, Usage
from speedrunner.results.cost_text import (
    COLUMNS,
    checkpoint_lines,
    cost_lines,
    limit_lines,
    notes,
    price_text,
    reconciliation_line,
    total_lines,
)
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import PriceBook
from tests.speedrunner.results.ledgers import BY_HOUR, BY_TOKEN, LIST, ROWS, row, stored

FIRST = {
    **{
        "checkpoint": 0,
        "episodes": 2,
        "unscored": 1,
        "silent": 0,
        "call_limit": 0.5,
        "action_limit": 0.0,
        "wall_clock": 0.0,
        "context_overflow": 0.0,
        "repeat_limit": 0.0,
    },
    **{"limited": 0.5, "score": 0.5, "llm_calls": 1.0, "uncached": 25.0, "cached": 90.0, "output": 15.0},
    **{"cost_usd": 0.00022, "rollout_usd": None, "public": 0, "skills": 0, "notes": False, "unreported": 0},
}
SECOND = FIRST | {
    **{
        "checkpoint": 2,
        "unscored": 0,
        "call_limit": 0.0,
        "limited": 0.0,
        "score": 1.0,
        "uncached": 200.0,
        "cached": 800.0,
    },
    **{"output": 10.0, "cost_usd": 0.0007, "rollout_usd": 0.003, "public": 1, "skills": 2},
}


def test_the_table_of_checkpoints_fits_into_eighty_columns_and_shows_every_number() -> None:
    lines = checkpoint_lines({"one": [FIRST, SECOND]}, 80)
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines if line.strip()][-2:] == [
        ["0", "0.500", "50%", "2", "(-1)", "1.0", "25", "90", "15", "0.000220", "-", "0/0"],
        ["2", "1.000", "0%", "2", "1.0", "200", "800", "10", "0.000700", "0.003000", "1/2"],
    ]


def test_the_checkpoints_of_several_runs_fit_into_sixty_columns_below_their_names() -> None:
    lines = checkpoint_lines({"runs/experiment/speedrunner-seed1": [FIRST], "runs/b": [SECOND]}, 60)
    assert max(map(len, lines[:-1])) <= 60
    assert lines[0] == "run"
    assert "runs/experiment/speedrunner-seed1" in lines
    assert lines[-1].startswith("(60 columns have no room for: ")
    assert any(line.split()[:2] == ["2", "1.000"] for line in lines)


def test_where_a_policy_has_notes_and_no_skills_the_table_says_so() -> None:
    shown = COLUMNS["skills"]
    assert shown(FIRST | {"notes": True}) == "notes"
    assert shown(SECOND | {"notes": True}) == "1/2"


def test_the_notes_tell_what_is_left_out_and_the_prices() -> None:
    text = notes([FIRST, SECOND], [BY_TOKEN])
    assert "1 test episodes (-n) ended by an infrastructure error and have no score" in text
    assert "Prices: a list; 1 uncached, 0.1 cached, 10 output (USD per million tokens)." in text
    assert "have no score" not in notes([SECOND], [BY_TOKEN])


def test_of_several_models_each_has_its_prices() -> None:
    assert price_text(PriceBook("mine", {"m": LIST, "n": LIST})) == price_text(PriceBook("mine", {"m": LIST}))
    assert price_text(PriceBook("mine", {"m": LIST, "n": Prices(2, 2, 2)})) == (
        "mine; m: 1 uncached, 0.1 cached, 10 output (USD per million tokens);"
        " n: 2 uncached, 2 cached, 2 output (USD per million tokens)"
    )
    assert price_text(BY_HOUR) == "hours; m on 4 GPUs"


def test_the_last_line_of_several_runs_is_their_sum(tmp_path: Path) -> None:
    runs = run_costs([stored(tmp_path / name, ROWS) for name in "ab"], [BY_TOKEN] * 2)
    one, two, whole = (line.split() for line in total_lines(["a", "b"], runs)[1:])
    assert [one[0], two[0], whole[0]] == ["a", "b", "all"]
    for own, other, both in zip(one[1:], two[1:], whole[1:], strict=True):
        assert "-" in {own, both} or float(own) + float(other) == pytest.approx(float(both))


def test_costs_with_engine_time_and_cache(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    cached = row(7.0, Usage(300, 200, 9, 4), cacheable=250, phase="test", policy="1")
    (costs,) = run_costs([stored(tmp_path / "run", [*ROWS, cached])], [BY_TOKEN])
    narrow = total_lines(["a"], [costs], 40)
    golden("costs.txt", "\n".join([*cost_lines(costs), "", *total_lines(["a"], [costs]), "", *narrow, ""]))


def test_what_is_not_measured_is_told(tmp_path: Path) -> None:
    rows = [*ROWS[1:], row(7.0, Usage(5, 0, 5), "inducer", model="other")]
    (costs,) = run_costs([stored(tmp_path / "run", rows)], [BY_TOKEN])
    lines = cost_lines(costs)
    assert "USD of other: not measured; the sums are without it." in lines
    assert any(line.startswith("Engine time: not measured") for line in lines)
    assert any(line.startswith("Prefix cache: not measured") for line in lines)


def test_budgets_of_thinking_that_were_too_little_are_told_by_role(tmp_path: Path) -> None:
    cut = msgspec.structs.replace(row(7.0, Usage(5, 0, 5)), thought_cut=True)
    (costs,) = run_costs([stored(tmp_path / "run", [*ROWS, cut])], [BY_TOKEN])
    of = costs.roles["actor"].answers
    (line,) = (each for each in cost_lines(costs) if "thinking" in each)
    share = f"{1 / of:.0%}"
    assert line == f"Answers whose thinking was closed at its budget: 1 of {of} of actor ({share})."
    (usual,) = run_costs([stored(tmp_path / "usual", ROWS)], [BY_TOKEN])
    assert not any("thinking" in each for each in cost_lines(usual))


def test_requests_that_were_cut_off_are_bounded(tmp_path: Path) -> None:
    (costs,) = run_costs([stored(tmp_path / "run", ROWS)], [BY_TOKEN])
    assert limit_lines(costs) == [
        "1 requests were cut off before their tokens were reported: at most 2000 prompt and 500 generated"
        " tokens,"
        " 0.007000 USD, beyond these sums."
    ]
    (usual,) = run_costs([stored(tmp_path / "usual", ROWS[:2])], [BY_TOKEN])
    assert limit_lines(usual) == []


CUT_OFF = (
    "2 requests were cut off before their tokens were reported; for these the engine counted 1 prompt and 0"
    " generated tokens, of at most 9 and 4"
)


@pytest.mark.parametrize(
    ("engine", "at_most", "ours", "verdict"),
    [
        (Counters(30, 20, 5), Counters(), True, "they agree to the token"),
        (Counters(30, 20, 5), Counters(9, 9, 9), False, "they agree to the token"),
        (Counters(31, 20, 5), Counters(), True, "they DIFFER, which is a defect: please report it"),
        (Counters(31, 20, 5), Counters(9, 9, 4), True, CUT_OFF),
        (Counters(40, 20, 5), Counters(9, 9, 4), True, "they DIFFER"),
        (Counters(29, 20, 5), Counters(9, 9, 4), True, "they DIFFER"),
        (Counters(31, 20, 5), Counters(), False, "they differ: SpeedRunner did not start the engine"),
    ],
)
def test_the_account_says_whether_ledger_and_engine_agree(
    engine: Counters, at_most: Counters, ours: bool, verdict: str
) -> None:
    unreported = 2 if at_most != Counters() else 0
    reconciliation = Reconciliation(
        model="tiny-random",
        since=0.0,
        ledger=Counters(30, 20, 5),
        engine=engine,
        unreported=unreported,
        at_most=at_most,
        ours=ours,
        time=0.0,
    )
    line = reconciliation_line(reconciliation)
    assert line.startswith(
        f"Tokens of tiny-random by ledger / by engine: prompt 30 / {engine.prompt}, cached 20 / 20,"
        " generated 5 / 5: "
    )
    assert verdict in line
