"""Where submitted jobs stand, by a stand-in of `squeue`; tests/slurm has a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speedrunner.cluster.jobs import JOBS, JobPart, JobStatus, Submitted, job_status, note_jobs
from tests.golden_tables import Golden, table
from tests.scripted_runs import in_process
from tests.stand_in_slurm import stand_in

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose two runs are parts of array 7."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    folder = tmp_path / "runs"
    folder.mkdir()
    note_jobs(folder, Submitted([part(folder, "7_1", "one"), part(folder, "7_2", "two")]))
    return folder


def part(folder: Path, job: str, run: str) -> JobPart:
    return JobPart(job, f"{folder}/jobs/{job}.log", [str(folder / run)])


def queue(folder: Path, *lines: str) -> list[JobStatus]:
    stand_in(folder.parent, "squeue", "".join(f"{line}\n" for line in lines))
    return job_status(folder)


def test_without_an_answer_of_slurm_nothing_is_known(runs: Path) -> None:
    stand_in(runs.parent, "squeue", refuses="Unable to contact slurm controller")
    for job in job_status(runs):
        assert (job.state, job.in_queue) == ("unknown", False)
        assert job.reason == "`squeue` refuses: Unable to contact slurm controller"


def test_where_no_job_was_submitted_slurm_is_not_asked(runs: Path) -> None:
    (runs / JOBS).unlink()
    given = stand_in(runs.parent, "squeue")
    assert job_status(runs) == []
    with pytest.raises(FileNotFoundError):
        given()


def test_the_command_says_a_line_for_each_job_of_an_unfinished_run(runs: Path, golden: Golden) -> None:
    def status(*lines: str) -> str:
        queue(runs, *lines)
        return in_process("status", str(runs)).stdout

    shown = {
        "one runs and one waits": status("7_1|RUNNING|gpu07|1|None|", "7_2|PENDING||0|Resources|"),
        "both ended": status(),
    }
    note_jobs(runs, Submitted([part(runs, "9_1", "one")]))
    shown["a later one waits for the same run"] = status("9_1|PENDING||0|Priority|")
    golden("cluster/status_of_jobs.txt", table(shown, RUNS=runs))
