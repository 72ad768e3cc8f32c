"""`speedrunner cost`, on a run as the real machinery left it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from serving.usage import Usage
from speedrunner.cli.cost_command import cost
from speedrunner.store.files import StorageError
from tests.scripted_runs import ScriptedRun

app = typer.Typer()
app.command()(cost)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_as_json_its_classes_are_the_ledger_s_sums(learnt: ScriptedRun) -> None:
    found = json.loads(printed(str(learnt.dir), "--json"))
    total = sum((row.usage or Usage() for row in learnt.data.requests), Usage())
    (run,) = found["runs"]
    assert run["total"]["tokens"] == {
        "cached": total.cached,
        "computed": total.uncached,
        "reasoning": total.reasoning,
        "action": total.action,
    }
    assert run["total"]["usd"] == pytest.approx(learnt.model_config.prices.cost(total))
    assert 0.9 < run["cache_share"] <= 1  # less than all: of requests in flight together each could be first


def test_of_several_runs_it_tells_the_sum(learnt: ScriptedRun, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(learnt.dir, copy)
    both = json.loads(printed(str(learnt.dir), str(copy), "--json"))
    alone = json.loads(printed(str(learnt.dir), "--json"))
    assert both["engine_s"] == alone["engine_s"] == alone["runs"][0]["engine_s"] > 0  # the same time
    for run in both["runs"]:
        assert run["total"]["tokens"] == alone["runs"][0]["total"]["tokens"]
    usd = sum(run["total"]["usd"] for run in both["runs"])
    assert f"\nAll runs: {usd:.6f} USD. Engine time: " in printed(str(learnt.dir), str(copy))


@pytest.mark.parametrize(("old", "new"), [('"prompt":', '"prompt":-'), ('"cached":', '"cached":9999')])
def test_a_row_that_cannot_be_ends_the_command_and_is_named(
    learnt: ScriptedRun, tmp_path: Path, old: str, new: str
) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    first, *rest = (run / "requests.jsonl").read_text().splitlines()
    assert old in rest[0]
    (run / "requests.jsonl").write_text("\n".join([first, rest[0].replace(old, new, 1), *rest[1:], ""]))
    with pytest.raises(StorageError, match=r"requests\.jsonl, line 2, is not a valid LedgerRow"):
        printed(str(run))
