"""A broken line hides its own record only: each command shows the others and names the line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from speedrunner.store.files import StorageError
from speedrunner.store.run_data import load
from tests.scripted_runs import in_process

pytestmark = pytest.mark.process

STORED = Path(__file__).parents[2] / "data/format_2"
TRAINED, ROWS, LEDGER = "trajectories/batch_0000.jsonl", "episodes.jsonl", "requests.jsonl"


def spoil(file: Path) -> None:
    """Break the second line of a file."""
    lines = file.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][: len(lines[1]) // 2] + b"\x00 and garbage\n"
    file.write_bytes(b"".join(lines))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run with three broken lines."""
    copy = Path(shutil.copytree(STORED, tmp_path / "runs/broken"))
    for name in (TRAINED, ROWS, LEDGER):
        spoil(copy / name)
    return copy


@pytest.mark.parametrize(
    ("arguments", "named", "shown"),
    [
        (("show", "RUN"), (TRAINED, ROWS), "train/0003"),
        (("show", "RUN", "train/3"), (TRAINED, ROWS), "train/0003: "),
        (("compare", "RUN"), (TRAINED, ROWS, LEDGER), "score"),
        (("cost", "RUN"), (TRAINED, ROWS, LEDGER), "inducer"),
        (("export", "RUN", "--to", "dataset", "--out", "OUT"), (TRAINED, ROWS), "3 conversations in train"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_a_command_shows_the_rest_and_names_each_broken_line_that_it_met(
    run: Path, tmp_path: Path, arguments: tuple[str, ...], named: tuple[str, ...], shown: str
) -> None:
    places = {"RUN": str(run), "OUT": str(tmp_path / "out")}
    done = in_process(*(places.get(each, each) for each in arguments))
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert [f"{run / name}, line 2, is not" in done.stderr for name in (TRAINED, ROWS, LEDGER)] == [
        name in named for name in (TRAINED, ROWS, LEDGER)
    ]
    assert "Traceback" not in done.stderr


def test_status_notes_the_broken_line(run: Path) -> None:
    (found,) = json.loads(in_process("status", str(run), "--json").stdout)["runs"]
    assert (found["of"], found["score"]) == (6, 0.0)
    assert f"{ROWS}, line 2, is not a valid EpisodeRow" in found["note"]


def test_an_episode_with_a_broken_line_is_refused_with_the_line(run: Path) -> None:
    shutil.copyfile(STORED / ROWS, run / ROWS)
    broken = load(STORED).trajectories()[1].episode
    done = in_process("show", str(run), broken)
    assert done.returncode == 1
    assert f"{TRAINED}, line 2, is not" in done.stderr


def test_prices_in_a_broken_line_are_missed_by_its_name(run: Path) -> None:
    file = run / "processes.jsonl"
    file.write_bytes(b"{\x00}\n" * 2)
    done = in_process("compare", str(run))
    assert (done.returncode, "has no prices: " in done.stderr) == (1, True)
    assert "processes.jsonl, line 1, is not a valid Process" in done.stderr


@pytest.mark.slow
def test_verify_checks_the_rest_and_fails(run: Path) -> None:
    done = in_process("verify", str(run), "--json")
    found = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    details = [line for each in found.values() for line in each["details"]]
    for name in (TRAINED, ROWS, LEDGER):
        assert sum(f"{name}, line 2, is not" in line for line in details) == 1, details
    assert "5 of 6 planned episodes" in found["plan"]["text"]
    assert "of 5 episodes" in found["replay"]["text"]


@pytest.mark.slow
def test_a_report_and_pages_have_the_rest(run: Path, tmp_path: Path) -> None:
    done = in_process("report", str(run.parent), "--out", str(tmp_path / "report"))
    assert done.returncode == 1  # as for each record that is left out
    assert "the report was written" in done.stdout
    assert f"{LEDGER}, line 2, is not" in done.stderr
    done = in_process("view", str(run.parent), "--static", str(tmp_path / "pages"))
    pages = tmp_path / "pages/runs/broken"
    assert (pages / "train/0003/1.html").exists(), done.stderr
    for name in (TRAINED, ROWS, LEDGER):
        assert f"{name}, line 2, is not" in (pages / "index.html").read_text()
    for name in (TRAINED, ROWS):
        assert f"{name}, line 2, is not" in (pages / "skills.html").read_text()


@pytest.mark.parametrize("name", [TRAINED, ROWS, LEDGER])
def test_whatever_continues_a_run_refuses_a_broken_line(run: Path, name: str) -> None:
    whole = load(run)
    read = {
        TRAINED: whole.trajectories,
        ROWS: lambda: whole.episodes,
        LEDGER: lambda: whole.requests,
    }[name]
    with pytest.raises(StorageError, match=rf"{name}, line 2, is not"):
        read()
