"""The requests with the most uncached tokens, and their causes."""

from __future__ import annotations

from pathlib import Path

from serving.usage import Usage
from speedrunner.results.costly_requests import list_costly
from speedrunner.store.records import PrefixChange
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.results.ledgers import row, stored
from tests.speedrunner.results.small_runs import SmallRun


def test_each_is_explained_by_its_turn_an_edit_or_an_eviction(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.sleep(1, PrefixChange(before=1000, after=1200, common=900, kept=800), requests=0)
    run.policy(1, {})
    play = {"phase": "train", "policy": "1", "attempt": "1"}
    with RunDirectory.open_for_writing(run.path) as directory:
        for request in (
            row(1.0, Usage(1200, 800, 1), "prefix_warm_up", phase="train", policy="1"),
            row(2.0, Usage(1900, 1200, 9), cacheable=1200, episode="train/0000", **play),
            row(3.0, Usage(2500, 1900, 9), cacheable=1900, episode="train/0000", **play),
            row(4.0, Usage(2600, 200, 9), cacheable=2500, episode="train/0000", **play),
            row(5.0, Usage(2700, 2690, 9), cacheable=2690, episode="train/0000", **play),
            row(6.0, None, episode="train/0000", status="aborted", **play),
        ):
            directory.append_request(request)
    assert list_costly(load(run.path), 4) == [
        "4 of 5 requests have 100% of the uncached prompt tokens:",
        "  train/0000 actor, request 3: 2400 of 2600 prompt tokens uncached: eviction, 2300 tokens that an"
        " earlier request had left were gone",
        "  train/0000 actor, request 1: 700 of 1900 prompt tokens uncached: the first prompt of a"
        " conversation",
        "  train/0000 actor, request 2: 600 of 2500 prompt tokens uncached: new text since the turn before",
        "  prefix_warm_up, request 1: 400 of 1200 prompt tokens uncached: the edits of sleep 1, which left"
        " 800 of 1000 tokens of the prefix",
    ]


def test_without_uncached_tokens_there_are_none(tmp_path: Path) -> None:
    assert list_costly(stored(tmp_path, [])) == []
    assert list_costly(stored(tmp_path / "run", [row(1.0, Usage(10, 10, 1))])) == []
