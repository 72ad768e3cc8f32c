"""Runs that are not what their configuration plans."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speedrunner.plain.findings import Finding
from speedrunner.runs.verification.plan_check import check_plan
from speedrunner.store.json_records import write_record
from speedrunner.store.run_data import load
from tests.golden_tables import Golden, table
from tests.scripted_runs import ScriptedRun
from tests.tampered_runs import change, copy_of, subject, told


def checked(run: Path) -> Finding:
    return check_plan(subject(run))


def state(run: Path, edit: Callable[[Any], object]) -> None:
    """Change what a run says to be finished."""
    found = load(run).state
    edit(found)
    write_record(run / "state.json", found)


TRAINED = "trajectories/batch_0000.jsonl"

TESTED = "evaluations/0002.jsonl"

RECORDS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "another task": (TRAINED, lambda it: it["task"].update(index=5)),
    "another policy": (TRAINED, lambda it: it.update(policy=1)),
    "a key that is not planned": (TRAINED, lambda it: it.update(episode="train/0009")),
    "a key of another batch": (TRAINED, lambda it: it.update(episode="train/0002")),
    "a key of another checkpoint": (
        TESTED,
        lambda it: it.update(episode=it["episode"].replace("0002", "0004")),
    ),
    "other rollouts of a sleep": ("sleeps/0001.json", lambda it: it.update(rollouts=1)),
}
STATES: dict[str, Callable[[Any], object]] = {
    "another step": lambda it: it.finished.append("wake/0007-0123456789ab"),
    "another content": lambda it: it.finished.append("wake/0000-0123456789ab"),
}
CONFIGS = {
    "fewer test episodes": ("test_episodes: 2", "test_episodes: 1"),
}


def reconfigure(run: Path, old: str, new: str) -> None:
    """Replace a text of a run's configuration."""
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace(old, new))


def test_what_is_not_planned_is_found(learnt: ScriptedRun, tmp_path: Path, golden: Golden) -> None:
    def copy(name: str) -> Path:
        run = copy_of(learnt.dir, tmp_path / name)
        for file in (run / TRAINED, run / TRAINED.replace("0000", "0001"), run / TESTED):
            lines = sorted(file.read_text().splitlines(), key=lambda line: json.loads(line)["episode"])
            file.write_text("\n".join(lines) + "\n")  # not in the order in which they ended
        return run

    found = {}
    for name, (file, edit) in RECORDS.items():
        change(run := copy(name), file, edit)
        found[name] = told(checked(run))
    for name, edit in STATES.items():
        state(run := copy(name), edit)
        found[f"state: {name}"] = told(checked(run))
    for name, (old, new) in CONFIGS.items():
        reconfigure(run := copy(name), old, new)
        found[f"configuration: {name}"] = told(checked(run))

    run = copy("missing records")
    (run / TRAINED).write_text((run / TRAINED).read_text().splitlines(keepends=True)[0])
    (run / "sleeps/0002.json").unlink()
    found["missing records"] = told(checked(run))
    text = table({name: "\n".join(lines) for name, lines in found.items()})
    golden("verification/changed_plans.txt", re.sub("-[0-9a-f]{12}", "-CONTENT", text))
