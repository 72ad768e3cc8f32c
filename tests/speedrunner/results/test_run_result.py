"""One run in numbers worked out by hand; and many runs, of which a damaged one stops none."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.pages.report_page import collect
from speedrunner.results.run_result import RunResult, note_silent_sleeps, read_or_describe, read_result
from speedrunner.results.writing import list_rows
from tests.speedrunner.results.small_runs import SLEEP_USD, SmallRun, learnt


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return read_result(learnt(tmp_path_factory.mktemp("learnt") / "run").path, None)


def test_libraries_are_those_of_the_policies(summary: RunResult) -> None:
    assert summary.checkpoints["functions"].to_dict() == {0: 0, 2: 2, 4: 1}
    assert summary.checkpoints["max_depth"].to_dict() == {0: 0, 2: 1, 4: 0}


def test_sleeps_without_a_request_are_counted_if_a_context_overflowed(tmp_path: Path) -> None:
    run = learnt(tmp_path / "run")
    assert note_silent_sleeps(read_result(run.path, None).sleeps) == []
    run.sleep(3, error="the context of the inducer overflowed after 0 calls", requests=0)
    run.sleep(4, error="no successful episode to learn from", requests=0)
    line = "1 of 4 sleeps sent no request (the inducer's context overflowed)"
    assert note_silent_sleeps(read_result(run.path, None).sleeps) == [line]
    assert f"{run.path}: {line}" in collect([run.path], None, lambda _: None).caveats


def test_sleeps_have_their_tokens_and_prefix(summary: RunResult) -> None:
    first, second = list_rows(summary.sleeps)
    assert [first[name] for name in ("uncached", "cached", "output", "llm_calls")] == [1000, 0, 100, 1]
    assert first["usd"] == pytest.approx(SLEEP_USD)
    prefix = ("prefix_before", "prefix_after", "prefix_invalidated")
    assert [first[name] for name in prefix] == [1000, 1080, 100]
    assert [second[name] for name in prefix] == [None, None, None]


def test_an_evaluation_in_the_middle_is_left_out(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.test(0, 0, [0.5, 0.5])
    run.test(2, 0, [0.5])
    found = read_result(run.path, None)
    assert (list(found.checkpoints.index), found.unfinished) == ([0], [2, 4])


def test_each_run_is_read_or_named(tmp_path: Path) -> None:
    paths = [learnt(tmp_path / str(number), run={"seed": number}).path for number in range(3)]
    (paths[1] / "requests.jsonl").write_text("{}\n{}\n")
    first, damaged, *others = (read_or_describe(path, None) for path in paths)
    read = [first, *others]
    assert [each if isinstance(each, str) else each.path for each in read] == [
        str(path) for path in (paths[0], *paths[2:])
    ]
    assert isinstance(first, RunResult)
    assert first.checkpoints["score"].to_dict() == {0: 0.25, 2: 0.75, 4: 1.0}
    assert isinstance(damaged, str)
    assert f"{paths[1]}/requests.jsonl, line 1, is not a valid LedgerRow" in damaged
