"""An attribution from its list of runs to its table, over the real machinery and a scripted engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.config.compose import group_file
from speedrunner.experiments.grid import Grid
from speedrunner.experiments.sweep import sweep
from speedrunner.experiments.sweep_members import members
from speedrunner.results.attribution import group_subjects, make_attribution_tables
from speedrunner.results.run_result import read_results
from speedrunner.runs.shutdown import Shutdown
from tests.scripted_engine import ScriptedEngine
from tests.scripted_runs import CORRIDOR, ScriptedRun, in_process

pytestmark = pytest.mark.process


async def test_a_skill_that_saves_six_and_seven_calls_adds_minus_six_and_a_half(
    learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    """Without its skill, the scripted actor takes seven single calls in one task, eight in the other."""
    with ScriptedEngine(tiny_tokenizer, learnt.server.script) as engine:
        played = ScriptedRun(tmp_path, learnt.model_config, engine)
        given = [f"run.start_from={learnt.dir}:1", f"env={CORRIDOR}", "run.seed=0", *played.arguments]
        planned = members(Grid(group_file("experiment", "attribution"), given, root=tmp_path / "runs").runs())
        shutdown = Shutdown(lambda line: None)
        result = await shutdown.run(sweep(planned, Console(quiet=True), shutdown))
    assert result.failures == {}
    runs = [found for found in read_results([Path(each.path) for each in planned], None)
            if not isinstance(found, str)]  # fmt: skip
    attribution, shapley = make_attribution_tables(group_subjects(runs))
    rows = [dict(zip(attribution.columns, row, strict=True)) for row in attribution.rows]
    found = {row["metric"]: row for row in rows}
    calls = found["llm_calls"]
    assert (calls["skill"], calls["change"], calls["pairs"]) == ("to_flag", "hidden", 2)
    assert (calls["with_skill"], calls["without"]) == (1, 7.5)
    assert (calls["added"], calls["low"], calls["high"]) == (-6.5, -7, -6)
    assert found["score"]["added"] == 0
    shares = [dict(zip(shapley.columns, row, strict=True)) for row in shapley.rows]
    assert [row["value"] for row in shares if row["metric"] == "llm_calls"] == [-6.5]


def test_run_names_the_command_that_plays_all_of_them(learnt: ScriptedRun) -> None:
    words = "experiment=attribution", f"run.start_from={learnt.dir}", f"env={CORRIDOR}", *learnt.arguments
    done = in_process("run", *words)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: 6 runs of ")
    assert f"`speedrunner sweep experiment=attribution run.start_from={learnt.dir}" in line
