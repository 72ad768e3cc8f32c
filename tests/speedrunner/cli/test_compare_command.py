"""`speedrunner compare`, on runs as the real machinery left them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from speedrunner.results.ledger import run_costs
from speedrunner.results.means import frame_checkpoints
from speedrunner.results.pricing import price_book
from speedrunner.store.process_notes import caveats
from tests.scripted_runs import ScriptedRun, in_process


@pytest.fixture
def other(learnt: ScriptedRun, tmp_path: Path) -> Path:
    return shutil.copytree(learnt.dir, tmp_path / "other")


def test_means_are_those_of_the_table_of_checkpoints(learnt: ScriptedRun, other: Path) -> None:
    data = learnt.data
    costs = run_costs(data, price_book(data))
    table = frame_checkpoints(data, costs).to_dict("index")
    done = in_process("compare", str(learnt.dir), str(other), "--json")
    found = json.loads(done.stdout)
    assert found["notes"] == caveats(learnt.data.processes)
    assert {row["rollouts"] for row in found["rows"]} == set(table)
    for row in found["rows"]:
        name = {"usd": "actor_usd"}.get(row["metric"], row["metric"])
        assert row["mean"]["mean"] == pytest.approx(table[row["rollouts"]][name])
        if row["run"] == str(other):
            assert row["difference"] == {"mean": 0, "low": 0, "high": 0, "count": 2}
