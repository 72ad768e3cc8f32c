"""What the meter adds up, and what it allows to be spent."""

from __future__ import annotations

import msgspec
import pytest

from serving.errors import SpendingCapReached
from serving.meter import LedgerRow, Meter, Spending, Status
from serving.usage import Prices, Usage

PRICES = Prices(uncached=1.0, cached=0.1, output=10.0)


def row(status: Status, usage: Usage | None, at_most: Usage | None = None) -> LedgerRow:
    wasted = status in ("aborted", "failed")
    return LedgerRow(
        request="r",
        retry=0,
        time=0.0,
        labels={},
        model="m",
        status=status,
        wasted=wasted,
        usage=usage,
        seconds=0.1,
        at_most=at_most,
    )


def test_every_row_is_written_and_every_token_counted_wasted_ones_too() -> None:
    rows: list[LedgerRow] = []
    meter = Meter(rows.append, PRICES)
    meter.record(row("ok", Usage(100, 40, 10, 5)))
    meter.record(row("aborted", Usage(100, 0, 3)))
    meter.record(row("failed", None, at_most=Usage(prompt=70, completion=9)))
    assert [each.status for each in rows] == ["ok", "aborted", "failed"]
    assert meter.total == Usage(200, 40, 13, 5)
    assert meter.requests == 3
    assert (meter.unreported, meter.at_most) == (1, Usage(prompt=70, completion=9))
    assert meter.spent_usd == pytest.approx((160 * 1.0 + 40 * 0.1 + 13 * 10.0) / 1e6)


def test_money_is_set_aside_while_a_request_runs_and_given_back_after() -> None:
    meter = Meter(lambda row: None, PRICES, Spending(2.5e-3))
    refused = pytest.raises(SpendingCapReached, match=r"0\.0010 USD more: over the cap of 0\.0025 USD")
    with meter.reservation(1000, 0), meter.reservation(1000, 0), refused, meter.reservation(1000, 0):
        pass
    with meter.reservation(1000, 100):
        pass


def test_what_was_spent_or_must_be_assumed_leaves_less() -> None:
    meter = Meter(lambda row: None, PRICES, Spending(3e-3))
    meter.record(row("ok", Usage(prompt=1000)))
    meter.record(row("aborted", None, at_most=Usage(prompt=1000)))
    with meter.reservation(900, 0):
        pass
    with pytest.raises(SpendingCapReached), meter.reservation(1100, 0):
        pass
    assert meter.spent_usd == pytest.approx(1e-3)


def test_a_cap_holds_over_all_meters_and_over_earlier_processes() -> None:
    spending = Spending(cap_usd=4e-3, before_usd=1e-3)
    one = Meter(lambda row: None, PRICES, spending)
    two = Meter(lambda row: None, Prices(uncached=2.0, cached=0.0, output=0.0), spending)
    one.record(row("ok", Usage(prompt=1000)))
    with two.reservation(1000, 0), pytest.raises(SpendingCapReached), one.reservation(100, 0):
        pass
    with two.reservation(900, 0), one.reservation(100, 0):
        pass


def test_requests_with_a_price_are_paid_if_the_engine_reported_them() -> None:
    meter = Meter(lambda row: None, Prices(uncached=0.0, cached=0.0, output=0.0, requests=3.0))
    answered = LedgerRow(
        request="r", retry=0, time=1.0, labels={}, model="m", status="ok", wasted=False, usage=Usage(1, 0, 1),
        seconds=1.0,
    )  # fmt: skip
    for row in (answered, answered, msgspec.structs.replace(answered, usage=None, status="failed")):
        meter.record(row)
    assert meter.spent_usd == pytest.approx(6e-6)
