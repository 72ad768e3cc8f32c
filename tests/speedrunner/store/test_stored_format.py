"""A run of the oldest format that is still read, `tests/data/format_3`, and records of newer formats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest

from speedrunner.results import TableName
from speedrunner.results import load as load_frames
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.results.run_result import read_result
from speedrunner.store.files import StorageError
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.scripted_runs import in_process

STORED = Path(__file__).parents[2] / "data/format_3"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy, in a folder of runs."""
    return Path(shutil.copytree(STORED, tmp_path / "runs/format_3"))


def test_its_records_are_read() -> None:
    run = load(STORED)
    assert (run.settings.env.name, run.settings.method.name, run.checkpoints) == (
        "babyai",
        "speedrunner",
        [0, 4],
    )
    assert len(run.episodes) == len(run.rows) == 6
    assert [len(run.trajectories()), len(run.evaluations()), len(run.sleeps)] == [4, 2, 1]
    assert {turn.role for each in run.trajectories() for turn in each.turns} == {"actor"}
    assert all(each.steps for each in run.trajectories())
    assert len(run.policies.load(1).skills) == 10
    assert run.processes[0].machine.cores > 0
    assert run.reconciliations[0].ledger == run.reconciliations[0].engine
    assert sum(row.usage.prompt for row in run.requests if row.usage) == run.reconciliations[0].ledger.prompt


@pytest.mark.parametrize("table", get_args(TableName))
def test_each_data_frame_has_rows(table: TableName) -> None:
    assert len(load_frames(STORED).frame(table)) > 0


def test_its_results_are_those_of_its_records() -> None:
    run = load(STORED)
    found = read_result(STORED, None)
    assert found.unfinished == []
    costs = run_costs(run, price_book(run))
    tokens = costs.total.tokens
    assert tokens.computed + tokens.cached == run.reconciliations[0].ledger.prompt
    assert costs.total.requests == len(run.requests)


@pytest.mark.process
def test_owning_it_changes_no_record(run: Path) -> None:
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    with RunDirectory.open_for_writing(run):
        pass
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "RUN", "train/0"), ("show", "RUN", "sleep/1"), ("compare", "RUN"), ("cost", "RUN"),
        ("status", "RUN"), ("show", "RUN", "library"),
        ("view", "RUN", "--static", "OUT"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_each_command_reads_it(run: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    given = [each.replace("RUN", str(run)).replace("OUT", str(tmp_path / "out")) for each in arguments]
    done = in_process(*given)
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr


@pytest.mark.process
def test_verify_passes(run: Path) -> None:
    done = in_process("verify", str(run), "--json")
    levels = {each["name"]: each["level"] for each in json.loads(done.stdout)["findings"]}
    # First prompts, whose texts may have changed since, are left out.
    assert levels == dict.fromkeys(("plan", "policies", "reconciliations", "replay"), "ok")
    assert done.returncode == 0


@pytest.mark.process
def test_its_status_is_known(run: Path) -> None:
    (row,) = json.loads(in_process("status", str(run), "--json").stdout)["runs"]
    assert (row["state"], row["episodes"]) == ("finished", 6)


FILES = (
    *("state.json", "processes.jsonl", "episodes.jsonl", "requests.jsonl", "reconciliation.jsonl"),
    *("trajectories/batch_0000.jsonl", "evaluations/0004.jsonl", "sleeps/0001.json"),
    "policies/v0001/library.json",
)


OLD, NEW = 2, 4
SAME_SINCE_1 = ("requests.jsonl", "reconciliation.jsonl")


@pytest.mark.parametrize(
    ("name", "written"),
    [(name, each) for each in (OLD, NEW) for name in FILES if each == NEW or name not in SAME_SINCE_1],
)
def test_another_format_is_refused_in_one_line_that_names_the_file(
    run: Path, name: str, written: int
) -> None:
    file = run / name
    text = file.read_text()
    lines = text.splitlines() if file.suffix == ".jsonl" else [text]
    known = json.loads(lines[0])["format"]
    first = json.loads(lines[0]) | {"format": written, "new": True}
    file.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    with pytest.raises(StorageError) as refused:
        read_all(run)
    message = str(refused.value)
    assert "\n" not in message
    assert name in message
    assert f"has format {written}, but this version of SpeedRunner reads format {known}: use the" in message


def read_all(path: Path) -> None:
    """Read every record of a run."""
    run = load(path)
    _ = run.trajectories(), run.evaluations(), run.episodes, run.sleeps, run.requests, run.processes
    _ = run.reconciliations, [run.policies.load(version) for version in run.policies.versions()]
