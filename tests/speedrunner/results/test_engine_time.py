"""The seconds in which runs used their engines."""

from __future__ import annotations

import msgspec
import pytest

from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.results.ledger import engine_seconds


def row(begin: float, end: float, role: str = "actor", model: str = "m") -> LedgerRow:
    return LedgerRow(
        request="r", retry=0, time=end, labels={"role": role}, model=model, status="ok", wasted=False,
        usage=Usage(1, 0, 1), seconds=end - begin,
    )  # fmt: skip


def ready(begin: float, model: str = "m") -> LedgerRow:
    return row(begin, begin, "readiness", model)


ONE = [ready(0.0), row(1.0, 3.0), row(2.0, 8.0)]
LATER = [ready(10.0), row(10.0, 11.0)]


@pytest.mark.parametrize(
    ("runs", "seconds"),
    [
        ([ONE], 8.0),  # with the time without requests
        ([[*ONE, *LATER]], 9.0),  # two processes
        ([ONE, ONE], 8.0),  # two runs at the same time
        ([ONE, [ready(6.0), row(7.0, 9.0)]], 9.0),
        ([ONE, [ready(0.0, "n"), row(1.0, 2.0, model="n")]], 10.0),  # two engines
        ([[row(0.0, 1.0)]], None),  # no process found it ready
        ([[msgspec.structs.replace(ready(0.0), retry=1), row(0.0, 1.0)]], None),
        ([], None),
    ],
)
def test_each_engine_s_seconds_with_a_run_count_once(
    runs: list[list[LedgerRow]], seconds: float | None
) -> None:
    assert engine_seconds(runs) == (None if seconds is None else pytest.approx(seconds))
