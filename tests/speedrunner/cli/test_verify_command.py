"""`speedrunner verify`, as people and programs read it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.scripted_runs import ScriptedRun, complaint, in_process
from tests.tampered_runs import change, copy_of, trusting


def test_one_line_for_each_check_of_a_run_that_holds(learnt: ScriptedRun) -> None:
    done = in_process("verify", str(learnt.dir), *trusting(learnt.dir))
    assert (done.returncode, done.stderr) == (0, "")
    *lines, summary = done.stdout.splitlines()
    checks = ("plan", "policies", "reconciliations", "replay")
    assert [line.split(": ")[0].split() for line in lines] == [["ok", check] for check in checks]
    assert summary == f"{learnt.dir}: 4 ok"


def test_a_run_that_has_played_nothing_asks_for_no_trust(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    for path in (*run.glob("*.jsonl"), *run.glob("*/*.jsonl"), run / "state.json"):
        path.unlink()
    assert complaint(in_process("verify", str(run))) == f"{run} has no episode yet: nothing to verify"


def test_differences_are_named_and_so_is_other_code(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    first = learnt.data.trajectories(0)[0]
    change(run, "processes.jsonl", lambda it: it["code"].update(envs="0123456789ab"))
    change(run, "trajectories/batch_0000.jsonl", lambda it: it["outcome"].update(score=0.25))
    done = in_process("verify", str(run), *trusting(run))
    assert done.returncode == 1
    assert "\nFAILED       replay: " in done.stdout
    assert f"\n             {first.episode}: outcome: recorded is " in done.stdout
    assert (
        "\nnote: changed since the run was played, which may explain a difference: code.envs" in done.stdout
    )
    as_json = in_process("verify", str(run), *trusting(run), "--json")
    assert as_json.returncode == 1
    found = json.loads(as_json.stdout)
    assert found["passed"] is False
    failed = {each["name"]: each["found"] for each in found["findings"] if each["level"] == "failed"}
    assert failed == {"reconciliations": 1, "replay": 1}
    assert found["notes"] == [line[6:] for line in done.stdout.splitlines() if line.startswith("note: ")]
