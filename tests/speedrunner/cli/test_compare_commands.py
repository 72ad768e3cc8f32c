"""`speedrunner cost`, on a run as the real machinery left it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from serving.usage import Usage
from speedrunner.results.ledger import Classes, run_costs
from speedrunner.results.pricing import price_book
from tests.scripted_runs import ScriptedRun, in_process


def printed(*runs: Path) -> str:
    return in_process("cost", *map(str, runs)).stdout


def test_a_run_named_twice_is_read_once(learnt: ScriptedRun) -> None:
    again = learnt.dir / ".." / learnt.dir.name
    for command in ("compare", "cost"):
        twice = in_process(command, str(learnt.dir), str(again))
        assert twice.stdout == in_process(command, str(again)).stdout


def test_the_sum_of_several_runs_is_that_of_the_ledger_and_their_time_counts_once(
    learnt: ScriptedRun, tmp_path: Path
) -> None:
    total = sum((row.usage or Usage() for row in learnt.data.requests), Usage())
    costs = run_costs(learnt.data, price_book(learnt.data))
    tokens = Classes(total.cached, total.uncached, total.reasoning, total.action)
    assert costs.total.tokens == tokens
    assert costs.total.usd == pytest.approx(learnt.model_config.prices.cost(total))
    assert costs.total.cache_share == 1  # the scripted engine forgets nothing
    copy = shutil.copytree(learnt.dir, tmp_path / "copy")
    (alone,) = re.findall("Engine time: .*", printed(learnt.dir))
    whole = f"All runs: {2 * (costs.total.usd or 0):.6f} USD. {alone}"
    assert whole in printed(learnt.dir, copy)


def test_an_unfinished_evaluation_is_no_checkpoint_of_break_even(learnt: ScriptedRun, tmp_path: Path) -> None:
    assert "Break-even: " in printed(learnt.dir)
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    (run / "config.yaml").write_text(
        (run / "config.yaml").read_text().replace("test_episodes: 2", "test_episodes: 3")
    )
    assert "Break-even: " not in printed(run)
