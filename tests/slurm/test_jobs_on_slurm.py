"""Runs as jobs of a real Slurm: through preemption, walltime and kills, to their ends, with nothing left.

The bundled model plays them. A job that is requeued waits two minutes for its start, which is not waited for.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil
import pytest

from serving.engine.server import VllmServer
from serving.model_configs import load_model_config
from speedrunner.store.run_data import load
from tests.bundled_models import bundled_folder
from tests.processes import HANGS_S, words
from tests.slurm.cluster import cluster, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

CHECKOUT = Path(__file__).parents[2]
SOON_S = 3
"""When a requeued job starts: a node refuses one in the second in which it has ended there."""


SETTINGS = {
    "env": "babyai",
    "method": "speedrunner",
    "model": "tiny",
    "run.rollouts": 4,
    "run.sleep_every": 4,
    "run.eval_every": 4,
    "run.test_episodes": 6,
    "run.in_flight": 2,
}
EPISODES = 4 + 2 * 6
SECRET = b"hf_this-must-not-be-written-anywhere"


class Slurm:
    """A cluster, and a folder for the runs of one test.

    Args:
        prefix: what commands are called with, where the cluster can only be reached so.
    """

    def __init__(self, folder: Path, environment: dict[str, str], prefix: tuple[str, ...] = ()) -> None:
        self.runs = folder / "runs"
        self.scratch = Path(mkdtemp(prefix="slurm-"))  # short enough for sockets
        self.environment = environment | dict.fromkeys(("HF_TOKEN", "OPENAI_API_KEY"), SECRET.decode())
        # With an empty cache, a start of vLLM would examine its model again.
        self.environment["VLLM_CACHE_ROOT"] = str(Path("~/.cache/vllm").expanduser())
        self.prefix = prefix
        self.jobs: list[str] = []

    def command(self, *command: str, check: bool = True) -> str:
        """What a command prints."""
        done = subprocess.run(
            [*self.prefix, *command],
            env=self.environment,
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stderr + done.stdout
        return done.stdout

    def speedrunner(self, *words: str) -> str:
        """What our own command prints, called within an interactive job of another size."""
        session = ("SLURM_MEM_PER_CPU=100", "SBATCH_MEM_PER_CPU=100", "SLURM_EXPORT_ENV=NONE")
        return self.command("env", *session, sys.executable, "-m", "speedrunner.cli", *words)

    def list_of_runs(self, count: int) -> Path:
        """A file with so many runs, which differ by their seeds."""
        file = self.runs.parent / "list.yaml"
        file.write_text(json.dumps([SETTINGS | {"run.seed": list(range(count))}]))
        return file

    def submit(self, count: int = 1, *more: str) -> list[str]:
        """Submit so many runs; the jobs' ids."""
        own = [f"--dir={self.runs}", "cluster=cpu", "cluster.cpus=4", "cluster.memory_gb=6", *more]
        scratch = f"cluster.scratch={self.scratch}"
        shown = self.speedrunner("sweep", str(self.list_of_runs(count)), *own, scratch, "--json")
        jobs = [each["job"] for each in json.loads(shown)["jobs"]]
        self.jobs += jobs
        return jobs

    def job(self, job: str) -> dict[str, str]:
        """What Slurm says of a job, and what it said last where it has forgotten it."""
        words = self.command("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def until(self, happened: Callable[[], Any], what: str) -> None:
        """Wait for something; jobs that wait for their time to come are started meanwhile."""
        deadline = time.monotonic() + HANGS_S
        while not happened():
            for job in self.jobs:
                told = self.job(job)
                waits_s = seconds_until(told["StartTime"]) if told["JobState"] == "PENDING" else 0
                if waits_s > SOON_S:
                    soon = f"StartTime=now+{SOON_S}seconds"
                    self.command("scontrol", "update", f"JobId={job}", soon, check=False)
            assert time.monotonic() < deadline, f"{what}: {[self.log(job) for job in self.jobs]}"
            time.sleep(0.5)

    def wait(self, job: str) -> None:
        """Wait until a job has come to its end, through however many starts; it must be a good one."""
        bad = 0

        def ended() -> bool:
            nonlocal bad
            state = self.job(job)["JobState"]
            bad = bad + 1 if state in ("FAILED", "CANCELLED", "TIMEOUT") else 0
            assert bad < 5, self.log(job)  # one that requeues itself counts as failed for a moment
            return state == "COMPLETED"

        self.until(ended, f"the end of job {job}")

    def log(self, job: str) -> str:
        file = self.runs / "jobs" / f"{job}.log"
        return file.read_text() if file.exists() else ""

    @property
    def run(self) -> Path:
        """The directory of the only run."""
        (found,) = self.directories
        return found

    @property
    def directories(self) -> list[Path]:
        return sorted(file.parent for file in self.runs.glob("*/config.yaml"))

    def restarts(self, job: str) -> int:
        return int(self.job(job)["Restarts"])

    def restart(self, job: str, *command: str) -> None:
        """Run a command that stops a job, and wait until it starts again."""
        before = self.restarts(job)
        self.command(*command)
        self.until(lambda: self.restarts(job) > before, f"another start of job {job}")

    def end(self) -> None:
        """Cancel all jobs, and wait until they have ended and removed their files."""
        for job in self.jobs:
            self.command("scancel", job, check=False)
        self.until(lambda: not self.command("squeue", "--noheader"), "the end of all jobs")
        self.until(lambda: not self.workers(), "the end of all processes")

    def workers(self) -> list[psutil.Process]:
        """All processes of ours that belong to this test's jobs."""
        return [each for each in psutil.process_iter() if str(self.runs) in words(each)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for jobs whose own engine is not what is tested, as an override."""
    model = load_model_config("tiny-random")
    bundled_folder(model.name)
    started = VllmServer(model, tmp_path_factory.mktemp("vllm") / "server.log")
    asyncio.run(started.start())
    try:
        yield f"serving.url={started.endpoint}"
    finally:
        asyncio.run(started.stop())


@pytest.fixture
def slurm(tmp_path: Path, environment: dict[str, str]) -> Iterator[Slurm]:
    slurm = Slurm(tmp_path, environment)
    yield slurm
    slurm.end()
    left = [each.name for each in slurm.scratch.rglob("*") if each.is_socket() or each.match("job-*")]
    shutil.rmtree(slurm.scratch)
    assert left == []


def seconds_until(moment: str) -> float:
    """From Slurm's local time; 0 where it knows none."""
    return 0.0 if moment == "Unknown" else datetime.fromisoformat(moment).timestamp() - time.time()


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def in_wake(run: Path) -> bool:
    return lines(run / "trajectories" / "batch_0000.jsonl") > 0


def in_sleep(run: Path) -> bool:
    ledger = run / "requests.jsonl"
    return ledger.exists() and b'"phase":"sleep"' in ledger.read_bytes()


def in_evaluation(run: Path) -> bool:
    return lines(run / "evaluations" / "0004.jsonl") > 0


def check(slurm: Slurm, run: Path, episodes: int = EPISODES, sleeps: int = 1, env: str = "babyai") -> None:
    """A finished run: each planned episode once, its accounts the engine's, nothing left of its processes."""
    data = load(run)
    assert len(data.rows) == len({row.episode for row in data.rows}) == episodes
    assert not any(row.termination.is_fault for row in data.rows)
    assert len(data.sleeps) == sleeps
    assert not (run / "lock").exists()
    assert not [file for file in slurm.runs.rglob("*") if file.is_file() and SECRET in file.read_bytes()]
    assert "differs" not in slurm.speedrunner("verify", str(run), f"--trust={env}")
    assert len([file for file in run.rglob("*") if file.is_file()]) < 60
    assert {file.stat().st_mode & 0o077 for file in [run, *run.rglob("*")]} == {0}
    assert all(each.agrees for each in data.reconciliations)


def test_runs_of_an_array_go_on_after_an_interruption_in_each_phase_and_status_tells(slurm: Slurm) -> None:
    jobs = slurm.submit(2, "--jobs=2")
    told = json.loads(slurm.speedrunner("status", str(slurm.runs), "--json"))
    assert [(job["job"], len(job["runs"])) for job in told["jobs"]] == [(job, 1) for job in jobs]
    assert {job["state"] for job in told["jobs"]} <= {"pending", "running", "configuring"}
    runs = [slurm.runs / f"babyai-speedrunner-tiny-seed{seed}" for seed in (0, 1)]
    interruptions = (
        (in_wake, ("scancel", "--signal=USR1")),
        (in_sleep, ("scancel", "--signal=TERM")),
        (in_evaluation, ("scontrol", "requeue")),
    )
    for phase, interrupt in interruptions:  # of the first job; the second one plays on
        slurm.until(partial(phase, runs[0]), f"{phase.__name__} of job {jobs[0]}")
        slurm.restart(jobs[0], *interrupt, jobs[0])
    for job in jobs:
        slurm.wait(job)
        assert "the engine died" not in slurm.log(job)
    assert [slurm.restarts(job) for job in jobs] == [3, 0]
    assert slurm.directories == runs
    for run in runs:
        check(slurm, run)
    told = json.loads(slurm.speedrunner("status", str(slurm.runs), "--json"))
    assert [run["state"] for run in told["runs"]] == ["finished", "finished"]


def test_a_job_whose_time_is_short_drains_and_goes_on_in_the_next(slurm: Slurm, server: str) -> None:
    slurm.environment["PYTHONPATH"] = str(CHECKOUT)  # before the installed packages, of which one has `tests`
    slow = "tests.odd_envs:Slow"
    settings = (f"env={slow}", "model=tiny-random", "model.inducer.max_calls=3", server)
    few = ("run.test_episodes=4", "run.in_flight=1")
    (job,) = slurm.submit(1, "cluster.minutes=3", *settings, *few)
    slurm.until(lambda: slurm.restarts(job) == 1, "the end of its time")
    assert "the time limit of the job was reached; finished work is recorded" in slurm.log(job)
    assert "DUE TO TIME LIMIT" not in slurm.log(job)
    slurm.command("scontrol", "update", f"JobId={job}", "TimeLimit=60")  # enough for the rest
    slurm.wait(job)
    check(slurm, slurm.run, 4 + 2 * 4, env=slow)


def test_after_a_sigkill_and_a_preemption_a_run_goes_on_with_all_that_had_ended(slurm: Slurm) -> None:
    whole_node = ("cluster.cpus=8", "run.test_episodes=16")
    (job,) = slurm.submit(1, *whole_node)
    slurm.until(lambda: slurm.directories and load(slurm.run).rows, "an episode")
    for worker in slurm.workers():
        if worker.name() != "srun":  # as it is when a machine runs out of memory
            worker.kill()
    slurm.until(lambda: slurm.job(job)["JobState"] == "FAILED" and not slurm.workers(), "the job's end")
    assert load(slurm.run).reconciliations == []
    recorded = {(row.episode, row.attempt) for row in load(slurm.run).rows}

    (again,) = slurm.submit(1, *whole_node)
    slurm.until(lambda: len(load(slurm.run).rows) > len(recorded), "an episode of the second job")
    above = ("--partition=high", "--cpus-per-task=8", "--output=/dev/null", "--wrap=sleep 1")
    slurm.restart(again, "sbatch", *above)
    slurm.wait(again)
    assert "stopped by SIGTERM; finished work is recorded" in slurm.log(again)
    check(slurm, slurm.run, episodes=4 + 2 * 16)
    assert recorded < {(row.episode, row.attempt) for row in load(slurm.run).rows}


def test_a_second_job_on_a_run_leaves_the_first_alone_and_a_cancelled_job_stays_so(
    slurm: Slurm, server: str
) -> None:
    # Longer than all of this takes.
    longer = ("run.rollouts=200", "model=tiny-random", "model.actor.max_calls=20", server)
    (job,) = slurm.submit(1, *longer)
    slurm.until(lambda: slurm.directories and in_wake(slurm.run), "wake")
    what = [str(slurm.list_of_runs(1)), f"--dir={slurm.runs}", "cluster=cpu", *longer]
    refused = slurm.command(sys.executable, "-m", "speedrunner.cli", "sweep", *what, "--json", check=False)
    assert refused == ""
    script, log = slurm.runs / "second.sbatch", slurm.runs / "second.log"
    script.write_text(slurm.speedrunner("sweep", *what, "--dry-run", "cluster.cpus=4", "cluster.memory_gb=4"))
    second = slurm.command("sbatch", "--parsable", f"--output={log}", str(script)).strip()
    slurm.until(lambda: slurm.job(f"{second}_1")["JobState"] == "FAILED", "the second job's end")
    first = rf"is in use by process \d+ of root on \S+ \(Slurm job {job}\)"
    assert re.search(first, log.read_text())
    before = len(load(slurm.run).rows)
    slurm.until(lambda: len(load(slurm.run).rows) > before, "another episode of the first job")
    assert slurm.job(job)["JobState"] == "RUNNING"

    slurm.command("scancel", job)
    slurm.until(lambda: not slurm.workers(), "the end of all processes")
    slurm.until(lambda: slurm.job(job)["JobState"] == "CANCELLED", "the job's end")
    assert slurm.restarts(job) == 0
    assert "no longer in the queue; not finished: babyai" in slurm.speedrunner("status", str(slurm.runs))


ODD = "a b@c+d=e:f,g -h"
"""A name of a folder that neither sbatch nor the shell may change."""


def test_names_reach_the_job_as_they_are(slurm: Slurm) -> None:
    """The job prints its folder and its words in place of a run."""
    here = slurm.runs.parent / ODD
    here.mkdir()
    shown = 'sh -c \'printf "%s\\0" "$PWD" "$@"\''
    site = {"gpus": 0, "cpus": 1, "memory_gb": 1, "minutes": 9, "container": shown}
    (here / "site.yaml").write_text(json.dumps(site))
    (here / "two\nlines.yaml").write_text(json.dumps([SETTINGS]))
    words = ["two\nlines.yaml", f"--dir={ODD} again"]
    command = [sys.executable, "-m", "speedrunner.cli", "sweep", *words, "cluster=site.yaml", "--json"]
    done = subprocess.run(command, env=slurm.environment, cwd=here, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    slurm.jobs.append(job["job"])
    slurm.wait(job["job"])
    log = here / f"{ODD} again" / "jobs" / f"{job['job']}.log"
    assert job["log"] == str(log)
    folder, _, *given, part, _ = log.read_text().split("\0")
    assert (folder, given[:2], part) == (str(here), words, "--part=1/1")


def test_a_node_without_any_network_plays_a_run_to_its_end(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        no_network() as within,
        cluster(tmp_path_factory.mktemp("offline"), within) as environment,
    ):
        slurm = Slurm(tmp_path, environment, within)
        settings = ("env=scienceworld", "env.family=3", "model=tiny-random", "run.test_episodes=2")
        few = ("run.rollouts=2", "run.sleep_every=2", "run.eval_every=2", "run.wall_clock_s=20")
        here = [sys.executable, "-m", "speedrunner.cli", "doctor", *settings, *few]
        assert "FAILED" not in slurm.command("srun", *here)
        (job,) = slurm.submit(1, *settings, *few, "model.actor.max_calls=5", "model.inducer.max_calls=5")
        slurm.wait(job)
        check(slurm, slurm.run, episodes=2 + 2 * 2, sleeps=1)
        shutil.rmtree(slurm.scratch)


@contextmanager
def no_network() -> Iterator[tuple[str, ...]]:
    """What commands are called with to run in a network of their own, in which there is only loopback."""
    # Slurm's daemons listen nowhere if all addresses are loopback's.
    up = "ip link set lo up && ip address add 10.0.0.1/32 dev lo && echo ready && exec sleep infinity"
    waiting = ["unshare", "--net", "sh", "-c", up]
    with subprocess.Popen(waiting, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield ("nsenter", f"--net=/proc/{process.pid}/ns/net")
        finally:
            process.kill()
