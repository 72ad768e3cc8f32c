"""`speedrunner cost`, on a run as the real machinery left it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from serving.usage import Usage
from speedrunner.results.ledger import Classes, run_costs
from speedrunner.results.pricing import price_book
from tests.scripted_runs import ScriptedRun, complaint, in_process


def printed(*runs: Path) -> str:
    return in_process("cost", *map(str, runs)).stdout


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


@pytest.mark.parametrize(("old", "new"), [('"prompt":', '"prompt":-'), ('"cached":', '"cached":9999')])
def test_a_row_that_cannot_be_ends_the_command_and_is_named(
    learnt: ScriptedRun, tmp_path: Path, old: str, new: str
) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    first, *rest = (run / "requests.jsonl").read_text().splitlines()
    assert old in rest[0]
    (run / "requests.jsonl").write_text("\n".join([first, rest[0].replace(old, new, 1), *rest[1:], ""]))
    assert "requests.jsonl, line 2, is not a valid LedgerRow" in complaint(in_process("cost", str(run)))
