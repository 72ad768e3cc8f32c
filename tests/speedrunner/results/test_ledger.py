"""Ledgers, priced and added up by role, class of tokens, checkpoint and episode."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.results.ledger import Classes, Ledger, RunCosts, run_costs
from speedrunner.results.pricing import PriceBook, busy_seconds
from tests.speedrunner.results.ledgers import BY_TOKEN, ROWS, row, stored


def priced(path: Path, book: PriceBook = BY_TOKEN, rows: list[LedgerRow] = ROWS) -> RunCosts:
    return run_costs(stored(path / "run", rows), book)


def test_the_cache_s_share_is_of_what_could_be_cached(tmp_path: Path) -> None:
    rows = [
        row(1.0, Usage(100, 64, 1), cacheable=96),
        row(2.0, Usage(100, 32, 1), cacheable=32),
        row(3.0, Usage(100, 50, 1)),
    ]
    total = priced(tmp_path, rows=rows).total
    assert (total.from_cache, total.cacheable, total.cache_share) == (96, 128, 0.75)
    assert priced(tmp_path / "nothing", rows=[]).total.cache_share is None
    # What another conversation left in the cache does not make up for what is lost of one's own.
    rows.append(row(4.0, Usage(100, 96, 1), cacheable=32))
    assert priced(tmp_path / "more", rows=rows).total.cache_share == 0.8


def test_rows_are_added_up_in_one_group_for_each_purpose(tmp_path: Path) -> None:
    labels = [{"phase": "train", "policy": "0", "episode": f"train/{n:04d}", "attempt": "1"} for n in (0, 1)]
    rows = [row(float(time), Usage(10, 0, 1), **labels[time % 2]) for time in range(100)]
    assert len(Ledger.of(stored(tmp_path / "run", rows)).groups) == 2


def test_an_episode_is_all_roles_of_the_attempt_that_counts(tmp_path: Path) -> None:
    episode = {"phase": "train", "policy": "0", "episode": "train/0000"}
    rows = [
        row(1.0, Usage(1000, 0, 0), **episode, attempt="1"),  # given up: another attempt followed
        row(2.0, Usage(100, 40, 6, 2), **episode, attempt="2"),
        row(3.0, Usage(50, 0, 4), "critic", **episode, attempt="2"),
        row(4.0, Usage(70, 0, 0), status="aborted", **episode, attempt="2"),  # its answer was lost
        row(
            5.0, Usage(500, 0, 0), "prefix_warm_up", phase="train", policy="0"
        ),  # for all episodes of the policy
    ]
    found = priced(tmp_path, rows=rows).episodes
    assert list(found) == ["train/0000"]
    assert found["train/0000"].useful == Classes(cached=40, computed=110, reasoning=2, action=8)
    assert found["train/0000"].useful_usd == pytest.approx((4 + 110 + 100) / 1e6)
    assert found["train/0000"].usd == pytest.approx((4 + 110 + 100 + 1070) / 1e6)


def answers(*spans: tuple[float, float]) -> list[LedgerRow]:
    """Answered requests from begin to end."""
    return [msgspec.structs.replace(row(end, Usage(1, 0, 1)), seconds=end - begin) for begin, end in spans]


@pytest.mark.parametrize(
    ("runs", "seconds"),
    [
        ([answers((1.0, 3.0), (2.0, 8.0), (10.0, 11.0))], 8.0),
        ([answers((1.0, 3.0)), answers((2.0, 4.0))], 3.0),  # two runs at the same time
        ([[row(2.0, None, status="aborted")]], 0.0),
    ],
)
def test_seconds_with_a_request_in_flight_count_once(
    tmp_path: Path, runs: list[list[LedgerRow]], seconds: float
) -> None:
    columns = [stored(tmp_path / f"{number}", rows).columns for number, rows in enumerate(runs)]
    assert busy_seconds(columns) == pytest.approx(seconds)
