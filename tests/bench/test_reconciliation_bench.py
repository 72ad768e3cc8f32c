"""The accounts' benchmark: when finished requests agree, what it prints, and when it fails."""

from __future__ import annotations

import json

import msgspec
import pytest

from serving.meter import LedgerRow
from serving.model_configs import load_model_config
from serving.reconciliation import Reconciliation
from serving.usage import Counters, Usage
from speedrunner.bench.measurement import Measurement, as_json, as_text
from tests.bench import reconciliation_bench as bench
from tests.bench.reconciliation_bench import Finished, finished_agree

NOTHING = Counters()


def made(unreported: int = 0, at_most: Counters = NOTHING) -> Reconciliation:
    return Reconciliation(
        model="tiny-random",
        ledger=Counters(),
        engine=Counters(),
        unreported=unreported,
        at_most=at_most,
        ours=True,
        since=0.0,
        time=0.0,
    )


class TestFinishedRequests:
    LEDGER = Finished(10, Counters(prompt=1000, cached=400, generated=200))

    @staticmethod
    def engine(requests: int, prompt: int, cached: int, generated: int) -> Finished:
        return Finished(requests, Counters(prompt, cached, generated))

    def test_agree_to_the_token(self) -> None:
        assert finished_agree(self.LEDGER, self.LEDGER, made())
        for more in (Counters(1, 0, 0), Counters(0, 1, 0), Counters(0, 0, 1)):
            other = Finished(10, self.LEDGER.tokens + more)
            assert not finished_agree(self.LEDGER, other, made(3, Counters(900, 900, 900)))

    def test_one_that_crossed_with_its_disconnect_is_within_the_bound_of_those_cut_off(self) -> None:
        cut_off = made(1, Counters(100, 100, 30))
        assert finished_agree(self.LEDGER, self.engine(11, 1090, 440, 225), cut_off)
        assert not finished_agree(self.LEDGER, self.engine(11, 1090, 440, 231), cut_off)
        assert not finished_agree(self.LEDGER, self.engine(11, 999, 399, 200), cut_off)
        assert not finished_agree(self.LEDGER, self.engine(12, 1090, 440, 225), cut_off)
        assert not finished_agree(self.LEDGER, self.engine(9, 1000, 400, 200), cut_off)


def row(usage: Usage | None, *, wasted: bool = False) -> LedgerRow:
    return LedgerRow(
        request="r",
        retry=0,
        time=0.0,
        labels={"role": "actor"},
        model="tiny-random",
        status="ok",
        wasted=wasted,
        usage=usage,
        seconds=0.1,
        at_most=Usage(50, 0, 20) if usage is None else None,
    )


def test_an_account_has_each_token_in_one_class_and_what_was_wasted_beside_them() -> None:
    rows = [row(Usage(100, 60, 20, 5)), row(Usage(50, 0, 10, 0), wasted=True), row(None, wasted=True)]
    assert bench._by_role(rows) == [
        {
            **{"role": "actor", "tries": 3, "unreported": 1},
            **{"cached": 60, "computed": 90, "reasoning": 5, "action": 25, "wasted": 60},
        }
    ]


def test_a_server_of_our_own_gets_a_cache_in_which_requests_are_in_each_others_way() -> None:
    model_config = bench.narrow(load_model_config("tiny-random"))
    assert model_config.context == 2048
    assert model_config.server.flags["num-gpu-blocks-override"] == 3 * 2048 // 32
    hybrid = bench.narrow(load_model_config("tiny-hybrid"))
    assert hybrid.server.flags["num-gpu-blocks-override"] >= 3 * hybrid.context // 640  # type: ignore[operator]


ROWS = [row(Usage(100, 60, 20, 5)), row(Usage(50, 0, 10, 0)), row(None, wasted=True)]
SUMS = {
    "ledger": Counters(150, 60, 30),
    "engine": Counters(170, 60, 34),
    "unreported": 1,
    "at_most": Counters(50, 50, 100),
}
BALANCE = msgspec.structs.replace(made(), **SUMS)


def measured(reconciliation: Reconciliation = BALANCE, generated: int = 30, calm: int = 0) -> Measurement:
    first_half = msgspec.structs.replace(reconciliation, engine=reconciliation.ledger + Counters(calm))
    return bench._measurement(
        3, ROWS, Finished(2, Counters(150, 60, generated)), first_half, reconciliation, 0
    )


def test_json_holds_all_sums() -> None:
    found = json.loads(as_json(measured()))
    assert (found["met"], found["requests"], found["wrong"]) == (True, 3, [])
    sums = {each["tokens"]: each for each in found["sums"]}
    assert sums["cut off (difference)"]["generated"] == 4
    assert sums["cut off, at most"]["prompt"] == 50
    assert found["roles"][0]["reasoning"] == 5


def test_people_see_a_table_and_whether_it_agrees() -> None:
    lines = [line.split() for line in as_text(measured()).splitlines()]
    assert ["actor", "3", "1", "60", "90", "5", "25", "0"] in lines
    assert ["finished,", "engine", "2", "150", "60", "30", "90"] in lines
    assert ["cut", "off", "(difference)", "not", "measured", "20", "0", "4", "20"] in lines
    assert lines[-1] == ["Ledger", "and", "engine", "agree."]


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (measured(calm=1), "the first half, to the token"),
        (measured(generated=31), "finished requests, to the token"),
        (
            measured(msgspec.structs.replace(BALANCE, at_most=Counters(10, 10, 100))),
            "all, within the bound of those that were cut off",
        ),
    ],
)
def test_whatever_does_not_agree_is_named_and_misses_the_target(found: Measurement, wrong: str) -> None:
    assert found.met is False
    assert found.notes == [f"DO NOT AGREE: {wrong}"]
