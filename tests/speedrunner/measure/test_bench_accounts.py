"""The accounts' benchmark: when finished requests agree, what it prints, and when it fails."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from serving.balance import Balance
from serving.cards import load_card
from serving.engine.metrics import Counters
from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.measure import bench_accounts as accounts
from speedrunner.measure.bench_accounts import Account, Finished, Result, finished_agree

NOTHING = Counters()


def balance(unreported: int = 0, at_most: Counters = NOTHING) -> Balance:
    return Balance(
        model="tiny",
        ledger=Counters(),
        engine=Counters(),
        unreported=unreported,
        at_most=at_most,
        ours=True,
        since=0.0,
        time=0.0,
    )


class TestFinishedRequests:
    LEDGER = Finished(requests=10, prompt=1000, computed=600, generated=200)

    def test_agree_to_the_token(self) -> None:
        assert finished_agree(self.LEDGER, self.LEDGER, balance())
        for field in ("prompt", "computed", "generated"):
            other = msgspec.structs.replace(self.LEDGER, **{field: getattr(self.LEDGER, field) + 1})
            assert not finished_agree(self.LEDGER, other, balance(3, Counters(900, 900, 900)))

    def test_one_that_crossed_with_its_disconnect_is_within_the_bound_of_those_cut_off(self) -> None:
        cut_off = balance(1, Counters(100, 100, 30))
        assert finished_agree(self.LEDGER, Finished(11, 1090, 650, 225), cut_off)
        assert not finished_agree(self.LEDGER, Finished(11, 1090, 650, 231), cut_off)
        assert not finished_agree(self.LEDGER, Finished(11, 999, 600, 200), cut_off)
        assert not finished_agree(self.LEDGER, Finished(12, 1090, 650, 225), cut_off)
        assert not finished_agree(self.LEDGER, Finished(9, 1000, 600, 200), cut_off)


def row(usage: Usage | None, *, wasted: bool = False) -> LedgerRow:
    return LedgerRow(
        request="r",
        retry=0,
        time=0.0,
        labels={"role": "actor"},
        model="tiny",
        status="ok",
        wasted=wasted,
        usage=usage,
        seconds=0.1,
    )


def test_an_account_has_each_token_in_one_class_and_what_was_wasted_beside_them() -> None:
    rows = [row(Usage(100, 60, 20, 5)), row(Usage(50, 0, 10, 0), wasted=True), row(None, wasted=True)]
    assert Account.of(rows) == Account(
        tries=3, unreported=1, cached=60, computed=90, reasoning=5, action=25, wasted=60
    )


def test_a_server_of_our_own_gets_a_cache_in_which_requests_are_in_each_others_way() -> None:
    card = accounts._narrow(load_card("tiny"))
    assert card.context == 2048
    assert card.server.flags["num-gpu-blocks-override"] == 3 * 2048 // 32
    hybrid = accounts._narrow(load_card("tiny-hybrid"))
    assert hybrid.server.flags["num-gpu-blocks-override"] >= 3 * hybrid.context // 640  # type: ignore[operator]


GOOD = Result(
    model="tiny",
    requests=3,
    statuses={"ok": 2, "aborted": 1},
    retries=1,
    preemptions=0,
    roles={"actor": Account(tries=3, unreported=1, cached=60, computed=90, reasoning=5, action=25, wasted=0)},
    finished=Finished(2, 150, 90, 30),
    finished_by_engine=Finished(2, 150, 90, 30),
    ledger=Counters(150, 60, 30),
    engine=Counters(170, 60, 34),
    calm_residual=Counters(),
    residual=Counters(20, 0, 4),
    at_most=Counters(50, 50, 100),
    agrees=True,
    ours=True,
)


class TestCommand:
    @pytest.fixture
    def app(self) -> typer.Typer:
        app = typer.Typer()
        app.command()(accounts.bench_accounts)
        return app

    @pytest.fixture(autouse=True)
    def result(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Result]:
        found = {"": GOOD}

        async def bench(*arguments: Any) -> Result:
            return found[""]

        monkeypatch.setattr(accounts, "_bench", bench)
        return found

    def test_json_is_one_object(self, app: typer.Typer) -> None:
        done = CliRunner().invoke(app, ["--json", "--requests", "3"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert (found["agrees"], found["requests"]) == (True, 3)
        assert found["residual"] == {"prompt": 20, "cached": 0, "generated": 4}
        assert found["at_most"] == {"prompt": 50, "cached": 50, "generated": 100}
        assert found["roles"]["actor"]["reasoning"] == 5

    def test_people_see_a_table_and_whether_it_agrees(self, app: typer.Typer) -> None:
        done = CliRunner().invoke(app, [])
        assert done.exit_code == 0
        lines = [line.split() for line in done.stdout.splitlines()]
        assert ["actor", "3", "1", "60", "90", "5", "25", "0"] in lines
        assert ["finished,", "engine", "2", "150", "60", "90", "30"] in lines
        assert ["cut", "off", "(difference)", "20", "0", "20", "4"] in lines
        assert done.stdout.endswith("The accounts agree.\n")

    def test_accounts_that_do_not_agree_are_the_exit_status(
        self, app: typer.Typer, result: dict[str, Result]
    ) -> None:
        result[""] = msgspec.structs.replace(GOOD, agrees=False)
        for arguments in ([], ["--json"]):
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 1
        assert json.loads(done.stdout)["agrees"] is False
