"""`speedrunner compare`, on runs as the real machinery left them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from speedrunner.results.checkpoints import frame_checkpoints
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from tests.scripted_runs import ScriptedRun, complaint, in_process


@pytest.fixture
def other(learnt: ScriptedRun, tmp_path: Path) -> Path:
    return shutil.copytree(learnt.dir, tmp_path / "other")


def test_means_are_those_of_the_table_of_checkpoints(learnt: ScriptedRun, other: Path) -> None:
    data = learnt.data
    (costs,) = run_costs([data], [price_book(data)])
    table = frame_checkpoints(data, costs).to_dict("index")
    done = in_process("compare", str(learnt.dir), str(other), "--json")
    found = json.loads(done.stdout)
    assert found["notes"] == []
    assert {row["rollouts"] for row in found["rows"]} == set(table)
    for row in found["rows"]:
        name = {"usd": "actor_usd"}.get(row["metric"], row["metric"])
        assert row["mean"]["mean"] == pytest.approx(table[row["rollouts"]][name])
        if row["run"] == str(other):
            assert row["difference"] == {"mean": 0, "low": 0, "high": 0, "count": 2}


def test_the_table_fits_into_eighty_columns(learnt: ScriptedRun, other: Path) -> None:
    lines = in_process("compare", str(learnt.dir), str(other)).stdout.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("A: "))
    assert lines[start].startswith(f"A: {learnt.dir}, prices: the run's own; ")
    assert lines[start + 1].startswith(f"B: {other}, ")
    table = lines[lines.index("after 0 rollouts") - 2 : -2]
    assert max(map(len, table)) <= 80
    assert table[3].split() == ["score", "A", "1.000", "1.000", "to", "1.000", "-"]
    assert table[4].split() == [
        *("B", "1.000", "1.000", "to", "1.000"),
        *("+0.000", "+0.000", "to", "+0.000", "2"),
    ]


def test_another_price_list_holds_for_all(learnt: ScriptedRun, other: Path) -> None:
    done = in_process("compare", str(learnt.dir), str(other), "--prices", "zero", "--json")
    usd = [row["mean"]["mean"] for row in json.loads(done.stdout)["rows"] if row["metric"] == "usd"]
    assert set(usd) == {0.0}


def test_mistakes_are_told_in_one_line(learnt: ScriptedRun, other: Path) -> None:
    config = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("Corridor\n", "Corridor\n  pit: -7\n"))
    line = complaint(in_process("compare", str(learnt.dir), str(other)))
    assert line == (f"{other} plays another environment than {learnt.dir}: env.pit: (not set) -> -7")
