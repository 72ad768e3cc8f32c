"""`speedrunner report`: a page and figures of runs that the machinery played or that were invented."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.golden_tables import Golden, table
from tests.scripted_runs import ScriptedRun, complaint, in_process
from tests.synthetic_sweep import write_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, one seed."""
    out = tmp_path_factory.mktemp("sweep") / "runs"
    write_sweep(out, seeds=1)
    return out


@pytest.fixture
def copied(sweep: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sweep, tmp_path / "runs")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, sweep: Path) -> tuple[Path, list[str]]:
    """The sweep with its report, and the lines that were printed."""
    runs = shutil.copytree(sweep, tmp_path_factory.mktemp("reported") / "runs")
    done = in_process("report", str(runs))
    assert (done.returncode, done.stderr) == (0, "")
    return runs, done.stdout.splitlines()


class Troubled(NamedTuple):
    """A sweep with its report, and what the command printed.

    Its runs have different versions of vLLM, one stands there twice, one has a damaged configuration. A
    folder that does not exist was named as well.
    """

    folder: Path
    done: subprocess.CompletedProcess[str]
    text: str


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory, sweep: Path) -> Troubled:
    here = tmp_path_factory.mktemp("troubled")
    folder = shutil.copytree(sweep, here / "runs")
    for run, version in zip(sorted(folder.iterdir()), ("1.0", "2.0"), strict=True):
        path = run / "processes.jsonl"
        path.write_text(path.read_text().replace('"versions":{}', f'"versions":{{"vllm":"{version}"}}'))
    shutil.copytree(min(folder.iterdir()), folder / "zz-again")
    (shutil.copytree(min(folder.iterdir()), folder / "damaged") / "config.yaml").write_text("run: [")
    named = (str(folder), str(here / "none"))
    done = in_process("report", *named, "--prices", "zero")
    return Troubled(folder, done, (folder / "report" / "report.html").read_text())


def test_a_run_as_the_machinery_left_it(learnt: ScriptedRun, tmp_path: Path) -> None:
    out, figures = tmp_path / "out", tmp_path / "out" / "figures"
    done = in_process("report", str(learnt.dir), "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    count = len([*(out / "tables").glob("*.csv")])
    last = f"the report was written to {out}: report.html, {count} tables, 1 figure"
    assert done.stdout.splitlines()[-1] == last
    text = (out / "report.html").read_text()
    assert str(learnt.dir) in text
    assert "<dt>Terminations</dt><dd>success 10" in text
    names = {path.stem for path in figures.iterdir()}
    assert {path.name for path in figures.iterdir()} == {
        f"{n}.{kind}" for n in names for kind in ("pdf", "svg")
    }
    assert names == {"combined_performance_scripted"}


def test_claims_are_judged(reported: tuple[Path, list[str]]) -> None:
    runs, lines = reported
    (line,) = (line for line in lines if line.startswith("claims of the paper: "))
    with (runs / "report/tables/claims.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    counts = Counter(row["verdict"] if row["has_runs"] == "1" else "without runs" for row in rows)
    assert {*counts} == {"without runs"}  # their limits are not those of the paper's experiments
    assert line.endswith(f"0 undecided, {counts['without runs']} without runs (tables/claims.csv)")
    (row,) = (row for row in rows if row["claim"] == "babyai-eighth")
    assert row["reason"].startswith("no finished run with the experiment's limits of speedrunner on babyai")
    assert row["experiment"] == "main"


def test_a_run_that_stands_there_twice_is_left_out_and_no_damage(troubled: Troubled) -> None:
    again = troubled.folder / "zz-again"
    said = f"{again} is left out: it has the condition and seed of {min(troubled.folder.glob('babyai-*'))}"
    assert said in troubled.done.stdout
    assert f"<li>{said}</li>" in troubled.text
    assert str(again) not in troubled.done.stderr


def test_what_is_damaged_or_missing_is_named_and_the_others_are_shown(troubled: Troubled) -> None:
    assert troubled.done.returncode == 1
    assert f'<li class="problem">{troubled.folder}/damaged/config.yaml cannot be read' in troubled.text
    assert f'">{max(troubled.folder.glob("babyai-*"))}</td>' in troubled.text


def test_a_run_without_an_episode_has_a_page_that_says_so(copied: Path) -> None:
    react, speedrunner = sorted(copied.iterdir())
    shutil.rmtree(speedrunner)
    for path in react.rglob("*.jsonl"):
        path.unlink()
    done = in_process("report", str(copied))
    assert (done.returncode, done.stderr) == (0, "")
    text = (copied / "report" / "report.html").read_text()
    assert "No checkpoint is finished yet." in text
    assert "<dt>Terminations</dt><dd>none yet" in text


def test_a_report_replaces_an_earlier_one_and_nothing_else(
    reported: tuple[Path, list[str]], copied: Path
) -> None:
    out = shutil.copytree(reported[0] / "report", copied / "report")
    before = {path.name for path in (out / "figures").iterdir()}
    for name in ("tables/mine.txt", "figures/old.svg", "tables/old.csv"):
        (out / name).write_text("")
    assert in_process("report", str(copied)).returncode == 0
    assert {path.name for path in (out / "figures").iterdir()} == before
    assert [(out / "tables" / name).exists() for name in ("mine.txt", "old.csv")] == [True, False]


def test_what_is_printed(
    sweep: Path, reported: tuple[Path, list[str]], troubled: Troubled, tmp_path: Path, golden: Golden
) -> None:
    """Other refusals are in the transcript of `speedrunner report`."""
    linked = shutil.copytree(sweep, tmp_path / "linked")
    (tmp_path / "mine").mkdir()
    (linked / "report").symlink_to(tmp_path / "mine")
    damage = troubled.done.stderr.partition(" while parsing")[0]
    printed = {
        "two runs": "\n".join(reported[1]),
        "three runs, one damaged, and a missing folder": troubled.done.stdout + damage,
        "a link in the place of the report": complaint(in_process("report", str(linked))),
    }
    assert not list((tmp_path / "mine").iterdir())
    places = {"SWEEP": reported[0].parent, "TROUBLED": troubled.folder.parent, "HERE": tmp_path}
    golden("printed_reports.txt", table(printed, **places))
