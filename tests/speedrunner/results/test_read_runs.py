"""Many runs are read in their order, in this process or in several, and a damaged one stops none."""

from __future__ import annotations

from pathlib import Path

import pytest
from speedrunner.results.TODO_read_runs import WORTHWHILE

from speedrunner.results import processes
from speedrunner.results.run_result import RunResult, read_results
from tests.speedrunner.results.small_runs import learnt


@pytest.mark.parametrize("count", [3, pytest.param(WORTHWHILE, marks=pytest.mark.process)])
def test_each_run_is_read_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(processes, "PROCESSES", 2)
    paths = [learnt(tmp_path / str(number), run={"seed": number}).path for number in range(count)]
    (paths[1] / "requests.jsonl").write_text("{}\n{}\n")
    first, damaged, *others = read_results(paths, None)
    read = [first, *others]
    assert [each if isinstance(each, str) else each.path for each in read] == [
        str(path) for path in (paths[0], *paths[2:])
    ]
    assert isinstance(first, RunResult)
    assert first.checkpoints["score"].to_dict() == {0: 0.25, 2: 0.75, 4: 1.0}
    assert isinstance(damaged, str)
    assert damaged.startswith(f"{paths[1]} has episodes but no ledger: ")
    assert f"{paths[1]}/requests.jsonl, line 1, is not a valid LedgerRow" in damaged
