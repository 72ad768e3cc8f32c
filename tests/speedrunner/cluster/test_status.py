"""Where runs stand: finished, going on, or stopped; also from elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from speedrunner.cluster.status import RunStatus, run_status
from speedrunner.store.discovery import runs_below
from speedrunner.store.rundir import RunDirectory
from tests.scripted_runs import CORRIDOR, LEARN, Runs, in_process, script, walker

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def played(shared_corridor: Runs) -> Path:
    """A sweep of two runs, of which the second waits for the first."""
    run = shared_corridor(script(walker, LEARN))
    return run.sweep(
        "- {method: speedrunner}\n- {method: speedrunner, run.rollouts: 0, run.start_from: {}}\n"
    )


def status(folder: Path, trust: str = CORRIDOR) -> list[RunStatus]:
    return [run_status(path, [trust]) for path in runs_below(folder)]


def one(found: list[RunStatus], words: str) -> RunStatus:
    (run,) = (run for run in found if re.search(words, Path(run.dir).name))
    return run


def test_what_is_finished(played: Path) -> None:
    found = status(played)
    first, again = (one(found, words) for words in ("speedrunner-[^f]", "-from_"))
    assert (first.state, first.episodes, first.of) == ("finished", 10, 10)
    assert (first.checkpoint, first.score, first.owner) == (4, 1.0, None)
    assert (again.state, again.episodes, again.of) == ("finished", 2, 2)


def test_a_folder_that_was_moved_says_the_same(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "elsewhere")
    assert [run.state for run in status(tmp_path)] == [run.state for run in status(played)]


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    """A copy of the first run alone."""
    first = Path(one(status(played), "speedrunner-[^f]").dir)
    return Path(shutil.copytree(first, tmp_path / "run"))


def test_one_that_somebody_plays_is_running_and_names_them(run: Path) -> None:
    (run / "state.json").write_text('{"format": 3, "secret": "s"}')
    with RunDirectory.open_for_writing(run):
        (found,) = status(run)
    assert (found.state, found.doing) == ("running", "evaluate/0000")
    assert f"process {os.getpid()} of" in (found.owner or "")
    (found,) = status(run)
    assert (found.state, found.owner) == ("stopped", None)


def test_an_unfinished_evaluation_has_no_score(run: Path) -> None:
    episodes = run / "episodes.jsonl"
    lines = [line for line in episodes.read_text().splitlines() if '"test/0004/0001"' not in line]
    episodes.write_text("".join(f"{line}\n" for line in lines))
    (run / "state.json").write_text('{"format": 3, "secret": "s"}')
    (found,) = status(run)
    assert (found.checkpoint, found.score, found.tested) == (2, 1.0, ["1/2 at 4"])
    shown = in_process("status", str(run), "--trust", CORRIDOR).stdout
    assert re.search(r" 9/10 +1\.000 at 2, 1/2 at 4  ", shown)


def test_one_that_names_what_is_not_here_is_counted_nevertheless(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("tests.toy_env:Corridor", "tests.gone:Corridor"))
    (found,) = status(run, "tests.gone:Corridor")
    assert (found.state, found.episodes, found.of) == ("unknown", 10, None)
    assert "tests.gone:Corridor" in found.note
    assert "cannot import tests.gone" in found.note


def test_a_damaged_run_says_what_is_wrong_and_hides_no_other(run: Path) -> None:
    shutil.copytree(run, run.parent / "whole")
    (run / "config.yaml").write_text("run: {")
    assert [found.state for found in status(run.parent)] == ["damaged", "finished"]
    assert "config.yaml" in status(run.parent)[0].note
    shown = in_process("status", str(run.parent))
    assert (shown.returncode, shown.stderr) == (1, "")
    assert "config.yaml" in shown.stdout


def test_the_command_prints_a_line_for_each(played: Path) -> None:
    done = in_process("status", str(played), "--trust", CORRIDOR)
    assert done.returncode == 0, done.stderr
    _, *runs = done.stdout.splitlines()
    assert len(runs[:-2]) == 2
    assert ["no reasoning before calls of actor" in line for line in runs] == [False, False, True, True]
    assert re.search(r"speedrunner-\S+ +finished +10/10 +1\.000 at 4$", done.stdout, re.MULTILINE)
    assert len(json.loads(in_process("status", str(played), "--json").stdout)["runs"]) == 2
