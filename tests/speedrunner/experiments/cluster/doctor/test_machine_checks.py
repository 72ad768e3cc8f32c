"""Limits, memory, cores and the job."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from speedrunner.experiments.cluster.cluster_subject import subject_of
from speedrunner.experiments.cluster.doctor import machine_checks
from speedrunner.workers import available_memory


def test_a_control_group_that_allows_few_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "job_7"
    group.mkdir()
    (group / "pids.max").write_text("1000\n")
    (group / "pids.current").write_text("100\n")
    own = tmp_path / "own"
    own.write_text("0::/job_7\n")
    monkeypatch.setattr(available_memory, "CGROUPS", tmp_path)
    monkeypatch.setattr(available_memory, "OWN_CGROUPS", own)
    (told,) = machine_checks.processes(subject_of(["model=tiny", "run.in_flight=16"]))
    assert (told.level, told.text) == ("warning", "900 more can be started, but 1140 may be needed")
    (told,) = machine_checks.processes(subject_of(["model=tiny", "run.in_flight=4"]))
    assert told.level == "ok"


def test_more_episodes_than_the_job_s_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    (told,) = machine_checks.memory(subject_of(["env=babyai", "run.in_flight=1"]))
    assert told.level == "ok"
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "2000")  # MiB
    (told,) = machine_checks.memory(subject_of(["env=scienceworld", "run.in_flight=16"]))
    assert told.level == "failed"
    assert told.text == "16 episodes of scienceworld take 9,120 MB, but 2,097 MB are free"
    assert told.remedy.startswith("run.in_flight=3, ")


def test_a_limit_of_the_user_s_own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(machine_checks.resource, "getrlimit", lambda kind: (64, 64))
    monkeypatch.setattr(available_memory, "OWN_CGROUPS", Path("/nowhere"))
    (told,) = machine_checks.processes(subject_of(["model=tiny", "run.in_flight=1"]))
    assert told.level == "warning"
    more, _, needed = told.text.partition(" more can be started, but ")
    assert int(more) < 64
    assert needed == "540 may be needed"


@pytest.mark.parametrize(("cores", "level"), [(1, "warning"), (2, "ok")])
def test_fewer_cores_than_episodes_need(cores: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks.os, "sched_getaffinity", lambda process: set(range(cores)))
    (told,) = machine_checks.cores(subject_of(["model=tiny"]))
    assert told.level == level


class TestSlurm:
    @pytest.mark.process
    def test_a_job_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JOB_ID", "4711")
        monkeypatch.setenv("SLURMD_NODENAME", "gpu07")
        now = 1_800_000_000
        clock = SimpleNamespace(time=lambda: now, sleep=lambda seconds: None)
        monkeypatch.setattr("speedrunner.config.slurm.time", clock)
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(now + 3630))
        (told,) = machine_checks.slurm(subject_of([]))
        assert (told.level, told.text) == ("ok", "job 4711 on gpu07, 60 min left for work")
        monkeypatch.delenv("SLURM_JOB_END_TIME")
        monkeypatch.setenv("PATH", "/nowhere")
        (told,) = machine_checks.slurm(subject_of([]))
        assert (told.level, told.text) == ("ok", "job 4711 on gpu07, without a known time limit")

    def test_a_login_node_is_told_apart(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert list(machine_checks.slurm(subject_of([]))) == []
        (tmp_path / "squeue").touch(mode=0o755)
        (told,) = machine_checks.slurm(subject_of(["model=qwen3.5-27b-2gpu"]))
        assert told.level == "warning"
        assert told.remedy == "srun --gres=gpu:2 speedrunner doctor model=qwen3.5-27b-2gpu"
