"""The experiments with stored libraries at `scale=smoke`, with the random model and a real vLLM."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint
from tests.scripted_runs import in_process, speedrunner
from tests.speedrunner.results.small_runs import SmallRun

pytestmark = pytest.mark.slow

SKILLS = {
    "ahead": "return go_forward()",
    "_turn": "return turn_left()",
    "around": "return _turn() + _turn()",
}


SHORT = ("model.actor.max_calls=3", "model.inducer.max_calls=3")


def rows(runs: Path, table: str) -> list[dict[str, str]]:
    """Return a table of the report of some runs."""
    done = in_process("report", str(runs))
    assert done.returncode == 0, done.stderr
    with (runs / "report" / "tables" / f"{table}.csv").open() as file:
        return [*csv.DictReader(file)]


@pytest.mark.parametrize(("name", "table"), [("attribution", "attribution"), ("shapley", "shapley")])
def test_what_skills_add(name: str, table: str, vllm_endpoint: Endpoint, tmp_path: Path) -> None:
    source = SmallRun(tmp_path / "source")
    source.policy(0, SKILLS)
    done = speedrunner(
        "sweep", f"experiment={name}", "scale=smoke", f"run.start_from={source.path}",
        f"serving.url={vllm_endpoint}", f"--dir={tmp_path / 'runs'}", *SHORT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert len([*(tmp_path / "runs").glob("*/config.yaml")]) == 4
    found = Counter(row["skill"] for row in rows(tmp_path / "runs", table) if row["metric"] == "llm_calls")
    assert {"ahead", "around"} <= {*found}
    (figure,) = (tmp_path / "runs" / "report" / "figures").glob("attribution_*.pdf")
    assert figure.stat().st_size > 0


def test_transfer(vllm_endpoint: Endpoint, tmp_path: Path) -> None:
    done = speedrunner(
        "sweep", "experiment=transfer", "scale=smoke", "env=babyai", f"serving.url={vllm_endpoint}",
        f"--dir={tmp_path}", *SHORT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = rows(tmp_path, "transfer")
    assert (row["library_model"], row["player_model"], row["episodes"]) == ("tiny-random", "tiny-random", "2")
    assert [*(tmp_path / "report" / "figures").glob("transfer_*.pdf")]
