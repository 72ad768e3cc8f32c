"""An engine's seconds, split among requests and runs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.results.engine_time import EngineTime, engine_time


def row(begin: float, end: float, role: str = "actor", retry: int = 0) -> LedgerRow:
    return LedgerRow(
        request="r", retry=retry, time=end, labels={"role": role}, model="m", status="ok", wasted=False,
        usage=Usage(1, 0, 1), seconds=end - begin,
    )  # fmt: skip


def ready(begin: float, end: float | None = None) -> LedgerRow:
    return row(begin, begin if end is None else end, "readiness")


def idle(time: EngineTime) -> float:
    return time.idle["m"]


def total(time: EngineTime) -> float:
    return sum(seconds or 0.0 for seconds in time.requests) + idle(time)


def test_a_second_belongs_to_those_who_wait_in_it() -> None:
    (time,) = engine_time([[ready(0.0), row(0.0, 4.0), row(1.0, 3.0)]])
    assert time.requests == pytest.approx([0.0, 3.0, 1.0])
    assert idle(time) == 0.0


def test_runs_share_what_both_wait_for_and_what_neither_does() -> None:
    first = [ready(0.0), row(1.0, 3.0), row(7.0, 8.0)]
    second = [ready(0.0), row(1.0, 3.0), row(3.0, 5.0)]
    one, other = engine_time([first, second])
    assert one.requests == pytest.approx([0.0, 1.0, 1.0])
    assert other.requests == pytest.approx([0.0, 1.0, 2.0])
    # The first second is both runs', from the other one's end on idle time is the one's alone.
    assert (idle(one), idle(other)) == (pytest.approx(0.5 + 2.0), pytest.approx(0.5))


def test_without_a_readiness_request_the_engine_is_not_ours() -> None:
    assert engine_time([[row(0.0, 1.0)]]) == [EngineTime([None], {})]


moments = st.floats(0, 1000, allow_nan=False)
requests = st.tuples(moments, st.floats(0, 50)).map(lambda span: (span[0], span[0] + span[1]))


@st.composite
def processes(draw: st.DrawFn) -> list[LedgerRow]:
    """Some processes of a run, one after another, each with requests at any times within it."""
    rows, now = [], draw(moments)
    for _ in range(draw(st.integers(1, 3))):
        rows.append(ready(now, now + draw(st.floats(0, 2))))
        spans = draw(st.lists(requests, max_size=6))
        rows += sorted((row(now + begin, now + end) for begin, end in spans), key=lambda each: each.time)
        now = max(each.time for each in rows) + draw(st.floats(0, 100))
    return rows


def union(spans: list[tuple[float, float]]) -> float:
    """Seconds in at least one of them."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


@given(st.lists(processes(), min_size=1, max_size=4))
def test_the_shares_of_all_runs_are_the_time_in_which_one_of_them_went_on(
    runs: list[list[LedgerRow]],
) -> None:
    going_on = []
    for rows in runs:
        starts = [n for n, each in enumerate(rows) if each.labels["role"] == "readiness"]
        for begin, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            process = rows[begin:end]
            going_on.append((min(r.time - r.seconds for r in process), max(r.time for r in process)))
    shares = engine_time(runs)
    assert sum(total(share) for share in shares) == pytest.approx(union(going_on), abs=1e-6)
    assert all((seconds or 0.0) >= -1e-9 for share in shares for seconds in [*share.requests, idle(share)])


def test_each_model_has_an_engine_of_its_own() -> None:
    first = [ready(0.0), row(0.0, 4.0)]
    other = [msgspec.structs.replace(each, model="n") for each in (ready(2.0), row(2.0, 3.0))]
    alone, both = engine_time([first, [*other, first[0]]])
    assert alone.requests == pytest.approx([0.0, 4.0])
    assert list(alone.idle) == ["m"]
    assert both.requests == pytest.approx([0.0, 1.0, 0.0])
    assert set(both.idle) == {"m", "n"}
