"""Ledgers, added up by role, class of tokens and checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.balance import Balance
from serving.engine.metrics import Counters
from serving.meter import LedgerRow, Status
from serving.usage import Prices, Usage
from speedrunner.costs.breakdown import IDLE, Breakdown, Classes, breakdowns, cache_share
from speedrunner.costs.cost_table import account_text, cost_lines
from speedrunner.costs.pricing import PriceBook
from speedrunner.costs.stored_accounts import stored_accounts
from speedrunner.store.data import RunData, load
from speedrunner.store.records import Policy
from speedrunner.store.rundir import RunDirectory
from tests.scripted_runs import ScriptedRun

LIST = Prices(uncached=1.0, cached=0.1, output=10.0)
BY_TOKEN = PriceBook("a list", {"m": LIST}, {})
BY_HOUR = PriceBook("hours", {"m": None}, {"m": 4}, gpu_hour_usd=3600.0)


def row(
    time: float,
    usage: Usage | None,
    role: str = "actor",
    *,
    status: Status = "ok",
    model: str = "m",
    at_most: Usage | None = None,
    cacheable: int | None = None,
    **labels: str,
) -> LedgerRow:
    return LedgerRow(
        request="r", retry=0, time=time, labels={"role": role, **labels}, model=model, status=status,
        wasted=status in ("aborted", "failed", "overflow"), usage=usage, seconds=1.0, at_most=at_most,
        cacheable=cacheable,
    )  # fmt: skip


ROWS = [
    row(1.0, Usage(1, 0, 1), "readiness"),
    row(2.0, Usage(1000, 900, 50, 20), phase="train", policy="0"),
    row(3.0, None, status="aborted", at_most=Usage(2000, 0, 500), phase="train", policy="0"),
    row(5.0, Usage(500, 400, 10, 0), "inducer", phase="sleep", policy="0"),
    row(6.0, Usage(300, 0, 5, 0), status="aborted", phase="test", policy="1"),
]


def stored(path: Path, rows: list[LedgerRow], *balances: Balance) -> RunData:
    with RunDirectory.open_for_writing(path) as run:
        run.write_config("run: {}\n")
        run.write_policy(Policy(version=0))
        for each in rows:
            run.append_request(each)
        for balance in balances:
            run.append_accounts(balance)
    return load(path)


def broken_down(path: Path, book: PriceBook = BY_TOKEN, rows: list[LedgerRow] = ROWS) -> Breakdown:
    return breakdowns([stored(path / "run", rows)], [book])[0]


def test_each_token_is_in_one_class_and_each_request_in_one_role(tmp_path: Path) -> None:
    found = broken_down(tmp_path)
    assert found.roles["actor"].tokens == Classes(cached=900, computed=400, reasoning=20, action=35)
    assert found.roles["inducer"].tokens == Classes(cached=400, computed=100, reasoning=0, action=10)
    assert found.total.requests == len(ROWS)
    assert found.total.tokens.total == sum(
        each.usage.prompt + each.usage.completion for each in ROWS if each.usage
    )
    assert sum(line.tokens.total for line in found.checkpoints.values()) == found.total.tokens.total


def test_what_was_wasted_stands_across_the_classes(tmp_path: Path) -> None:
    found = broken_down(tmp_path)
    assert found.total.wasted == Classes(computed=300, action=5)
    assert found.total.wasted_usd == pytest.approx(300e-6 + 50e-6)


def test_the_paper_s_formula_per_class(tmp_path: Path) -> None:
    usd = broken_down(tmp_path).roles["actor"].usd_by_class
    assert usd is not None
    assert (usd.cached, usd.computed, usd.reasoning, usd.action) == pytest.approx(
        (90e-6, 400e-6, 200e-6, 350e-6)
    )


def test_what_no_client_saw_stands_apart(tmp_path: Path) -> None:
    total = broken_down(tmp_path).total
    assert (total.unreported, total.at_most) == (1, Classes(computed=2000, action=500))
    assert total.at_most_usd == pytest.approx(2000e-6 + 5000e-6)


def test_checkpoints_are_phases_of_a_policy_in_the_order_of_the_run(tmp_path: Path) -> None:
    found = broken_down(tmp_path)
    assert list(found.checkpoints) == [
        ("(none)", None),
        ("train", 0),
        ("sleep", 0),
        ("test", 1),
        (IDLE, None),
    ]


def test_gpu_hours_price_every_second_of_the_engine(tmp_path: Path) -> None:
    found = broken_down(tmp_path, BY_HOUR)
    # Six seconds, one of them idle, on four GPUs at a dollar a second.
    assert found.roles[IDLE].engine_s == pytest.approx(1.0)
    assert found.total.engine_s == pytest.approx(6.0)
    assert found.total.usd == pytest.approx(24.0)
    assert found.total.usd_by_class is None
    assert found.total.wasted_usd == pytest.approx(8.0)  # both aborted requests


def test_a_model_without_a_price_is_named(tmp_path: Path) -> None:
    found = broken_down(tmp_path, rows=[*ROWS, row(7.0, Usage(5, 0, 5), "inducer", model="other")])
    assert found.unpriced == ["other"]
    assert "USD of other: not measured; the sums are without it." in cost_lines(found)


def test_engine_time_of_a_hosted_model_is_not_measured(tmp_path: Path) -> None:
    found = broken_down(tmp_path, rows=ROWS[1:])
    assert found.total.engine_s is None
    assert IDLE not in found.roles
    assert any(line.startswith("Engine time: not measured") for line in cost_lines(found))


def test_the_cache_s_share_is_of_what_could_be_cached() -> None:
    share = cache_share([
        row(1.0, Usage(100, 64, 1), cacheable=96),
        row(2.0, Usage(100, 96, 1), cacheable=32),  # more than it could is no better than all
        row(3.0, Usage(100, 0, 1)),
        row(4.0, None, cacheable=96),
    ])  # fmt: skip
    assert (share.cached, share.cacheable, share.requests, share.share) == (96, 128, 2, 0.75)
    assert cache_share([]).share is None


def account(time: float, *counts: int) -> Balance:
    ledger = Counters(*counts)
    return Balance(
        model="m",
        ledger=ledger,
        engine=ledger,
        unreported=0,
        at_most=Counters(),
        ours=True,
        since=0.0,
        time=time,
    )


def test_stored_accounts_are_compared_process_by_process(tmp_path: Path) -> None:
    killed = [row(1.0, Usage(1, 0, 1), "readiness"), row(2.0, Usage(10, 5, 3))]
    ended = [row(11.0, Usage(1, 0, 1), "readiness"), row(12.0, Usage(20, 5, 4))]
    run = stored(tmp_path / "run", killed + ended, account(13.0, 21, 5, 5))
    found = stored_accounts([run], ["m"])
    assert (found.equal, found.without) == (True, 1)
    assert "equal the stored ones (1 of 1); 1 of these agreed" in account_text(found)


def test_an_account_that_the_ledger_does_not_give_is_told(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", ROWS, account(7.0, 9, 9, 9))
    found = stored_accounts([run], ["m"])
    assert found.equal is False
    assert "1 of 1 DIFFER from the classes' sums, such as prompt 1801 now, 9 stored" in account_text(found)


def test_the_one_account_of_a_sweep_is_that_of_all_its_runs(tmp_path: Path) -> None:
    balance = account(9.0, 22, 10, 6)
    rows = [row(1.0, Usage(1, 0, 1), "readiness"), row(2.0, Usage(10, 5, 2))]
    runs = [stored(tmp_path / name, rows, balance) for name in ("one", "other")]
    assert stored_accounts(runs, ["m", "m"]).equal is True
    assert stored_accounts(runs[:1], ["m"]).equal is False


def test_without_an_account_nothing_is_said_to_be_equal(tmp_path: Path) -> None:
    found = stored_accounts([stored(tmp_path / "run", ROWS)], ["m"])
    assert found.equal is None
    assert "not measured: no process came to its end; 1 processes left none" in account_text(found)


def test_a_real_run_s_ledger_is_its_stored_account(learnt: ScriptedRun) -> None:
    found = stored_accounts([learnt.data], [learnt.card.name])
    assert (found.equal, found.without) == (True, 0)
