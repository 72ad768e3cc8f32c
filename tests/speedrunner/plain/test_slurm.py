"""What is asked of Slurm, with stand-ins of its commands; tests/slurm has a real one."""

from __future__ import annotations

import unittest
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from speedrunner.plain.slurm import RESERVE_S, SlurmRefused, has_ended, run_slurm, time_left_s
from tests.golden_tables import Golden, error_message, table
from tests.stand_in_slurm import stand_in

pytestmark = pytest.mark.process

NOW = 1_800_000_000


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job, on a machine without Slurm's commands."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    clock = SimpleNamespace(time=lambda: NOW, sleep=lambda seconds: None)
    monkeypatch.setattr("speedrunner.plain.slurm.time", clock)


class TestTheTimeThatIsLeft:
    def test_is_unbounded_outside_of_a_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SLURM_JOB_ID")
        assert time_left_s() is None

    def test_is_told_by_the_job_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(NOW + 3600))
        assert time_left_s() == 3600 - RESERVE_S

    @pytest.mark.parametrize(
        ("left", "seconds"),
        [
            *(("4:05", 245), ("59:59", 3599), ("2:00:00", 7200), ("1-02:03:04", 93784)),
            *(("0:10", RESERVE_S), ("0:00", RESERVE_S)),  # nothing is left for work
        ],
    )
    def test_else_is_asked_of_the_queue(self, tmp_path: Path, left: str, seconds: float) -> None:
        given = stand_in(tmp_path, "squeue", left)
        assert time_left_s() == seconds - RESERVE_S
        assert given() == ["--noheader", "--jobs=4711", "--format=%L"]

    def test_is_asked_again_of_a_busy_controller(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries = iter(["refuses", "answers"])

        def sleep(seconds: float) -> None:
            if next(tries) == "answers":
                stand_in(tmp_path, "squeue", "2:00:00")

        monkeypatch.setattr("speedrunner.plain.slurm.time.sleep", sleep)
        stand_in(tmp_path, "squeue", refuses="Socket timed out on send/recv operation")
        assert time_left_s() == 7200 - RESERVE_S

    @pytest.mark.parametrize("left", ["UNLIMITED", "NOT_SET", "INVALID", ""])
    def test_is_unbounded_where_the_job_has_no_limit(self, tmp_path: Path, left: str) -> None:
        stand_in(tmp_path, "squeue", left)
        assert time_left_s() is None

    def test_that_cannot_be_known_is_logged(self) -> None:
        with unittest.TestCase().assertLogs(level="WARNING") as logged:
            assert time_left_s() is None
        assert "the time limit of job 4711 is unknown: `squeue` is not installed here" in logged.output[0]

    @pytest.mark.parametrize(("end", "answer"), [(NOW, {}), (NOW + 9, {"refuses": "Invalid job id"})])
    def test_is_unbounded_where_a_terminal_kept_the_variables_of_a_job_that_is_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end, answer
    ) -> None:
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(end))
        if answer:
            stand_in(tmp_path, "squeue", **answer)
        with unittest.TestCase().assertLogs(level="WARNING") as logged:
            assert time_left_s() is None
        assert [each.getMessage() for each in logged.records] == ["SLURM_JOB_ID is ignored: job 4711 is over"]


class TestAJobHasEnded:
    @pytest.mark.parametrize("states", ["", "PENDING", "PENDING\nPENDING"])
    def test_when_it_is_out_of_the_queue_or_waits_to_start(self, tmp_path: Path, states: str) -> None:
        given = stand_in(tmp_path, "squeue", states)
        assert has_ended("4711")
        assert given() == ["--noheader", "--jobs=4711", "--format=%T"]

    @pytest.mark.parametrize("states", ["RUNNING", "COMPLETING", "SUSPENDED", "PENDING\nRUNNING"])
    def test_but_not_while_something_of_it_runs(self, tmp_path: Path, states: str) -> None:
        stand_in(tmp_path, "squeue", states)
        assert not has_ended("4711")

    def test_nor_when_slurm_does_not_say(self, tmp_path: Path) -> None:
        assert not has_ended("4711")
        stand_in(tmp_path, "squeue", refuses="Unable to contact slurm controller")
        assert not has_ended("4711")


def test_what_slurm_refuses_is_one_line(tmp_path: Path, golden: Golden) -> None:
    submit = partial(error_message, partial(run_slurm, "sbatch", "--parsable"), SlurmRefused)
    lines = {"no Slurm": submit()}
    stand_in(tmp_path, "sbatch", refuses="sbatch: error: invalid partition\nsbatch: error: no job")
    lines["two lines"] = submit()
    stand_in(tmp_path, "sbatch", refuses="")
    lines["only an exit status"] = submit()
    golden("cluster/slurm_errors.txt", table(lines))
