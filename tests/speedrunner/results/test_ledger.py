"""Ledgers, priced and added up by role, class of tokens, checkpoint and episode."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.results.ledger import Classes, RunCosts, run_costs
from speedrunner.results.pricing import PriceBook
from speedrunner.store.stored_run import sleep_key
from tests.scripted_runs import ScriptedRun
from tests.speedrunner.results.ledgers import BY_TOKEN, ROWS, row, stored
from tests.speedrunner.run_samples import usage_of


def priced(path: Path, book: PriceBook = BY_TOKEN, rows: list[LedgerRow] = ROWS) -> RunCosts:
    return run_costs(stored(path / "run", rows), book)


def test_each_token_is_in_one_class_and_each_request_in_one_role(tmp_path: Path) -> None:
    found = priced(tmp_path)
    assert found.roles["actor"].tokens == Classes(cached=900, computed=400, reasoning=20, action=35)
    assert found.roles["inducer"].tokens == Classes(cached=400, computed=100, reasoning=0, action=10)
    assert found.total.requests == len(ROWS)
    assert found.total.tokens.total == sum(
        each.usage.prompt + each.usage.completion for each in ROWS if each.usage
    )


def test_what_was_wasted_stands_across_the_classes(tmp_path: Path) -> None:
    found = priced(tmp_path)
    assert found.total.wasted == Classes(computed=300, action=5)
    assert found.total.wasted_usd == pytest.approx(300e-6 + 50e-6)


def test_the_paper_s_formula_per_class(tmp_path: Path) -> None:
    usd = priced(tmp_path).roles["actor"].usd_by_class
    assert usd is not None
    assert (usd.cached, usd.computed, usd.reasoning, usd.action) == pytest.approx(
        (90e-6, 400e-6, 200e-6, 350e-6)
    )


def test_the_cache_s_share_is_of_what_could_be_cached(tmp_path: Path) -> None:
    rows = [
        row(1.0, Usage(100, 64, 1), cacheable=96),
        row(2.0, Usage(100, 32, 1), cacheable=32),
        row(3.0, Usage(100, 50, 1)),
    ]
    total = priced(tmp_path, rows=rows).total
    assert (total.from_cache, total.cacheable, total.cache_share) == (96, 128, 0.75)
    assert priced(tmp_path / "nothing", rows=[]).total.cache_share is None
    # More than all of it would be a fault, which shows.
    fault = priced(tmp_path / "fault", rows=[row(1.0, Usage(100, 96, 1), cacheable=32)])
    assert fault.total.cache_share == 3.0


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


def test_of_a_real_run_the_ledger_s_episodes_are_those_of_the_records(learnt: ScriptedRun) -> None:
    costs = run_costs(learnt.data, BY_TOKEN)
    recorded = {each.episode: each.usage for each in learnt.data.episodes}
    recorded |= {sleep_key(each.sleep): usage_of(each) for each in learnt.data.sleeps}
    assert {key: line.useful for key, line in costs.episodes.items()} == {
        key: Classes.of(usage) for key, usage in recorded.items()
    }
