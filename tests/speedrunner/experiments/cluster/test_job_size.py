"""The cores and the memory of a job: by environments, episodes, servers and forecasts."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import msgspec
import pytest

from speedrunner.experiments.cluster import job_size as sizes
from speedrunner.experiments.cluster.job_size import JobSize, Servers, job_size, servers_of
from speedrunner.experiments.grid import Grid
from speedrunner.experiments.sweep_members import Member, members
from speedrunner.workers.sandbox.settings import Sandbox
from speedrunner.workers.worker_pool import worker_mb
from tests.scripted_runs import CORRIDOR, SCHEDULE
from tests.speedrunner.experiments.kept_forecasts import keep_forecasts


def planned(folder: Path, *given: str, env: str = "babyai", seeds: int = 2) -> list[Member]:
    """Return runs that differ by their seed, with `tiny` unless `given` names another model."""
    file = folder / "runs.yaml"
    model = {} if any(each.startswith("model=") for each in given) else {"model": "tiny"}
    entry = {"env": env, "method": "react", "run.seed": list(range(seeds)), **model}
    file.write_bytes(msgspec.json.encode([entry]))
    return members(Grid(file, given, root=folder / "runs").runs(), plays_here=False)


def runs_gb(env: str, workers: int, runs: int = 2) -> int:
    """Return the memory of all workers, and of an inducer's interpreter in each run."""
    return ceil(workers * worker_mb(env) * 10**6 / 2**30 + runs * Sandbox.memory_mb / 1024)


class TestTheMemory:
    def test_is_that_of_workers_interpreters_server_and_main_process(self, tmp_path: Path) -> None:
        size = job_size([planned(tmp_path, "run.in_flight=16")], 64)
        assert size.memory_gb == runs_gb("babyai", 2 * 16) + sizes.CLIENT_GB + sizes.SERVER_GB

    def test_covers_only_the_runs_that_are_open_together(self, tmp_path: Path) -> None:
        few, many = (job_size([planned(tmp_path, "run.in_flight=16", seeds=n)], 8) for n in (1, 9))
        assert few.memory_gb == many.memory_gb

    def test_is_larger_for_larger_workers(self, tmp_path: Path) -> None:
        world = planned(tmp_path, "env.family=3", "run.in_flight=16", env="scienceworld")
        assert job_size([world], 64).memory_gb == (
            runs_gb("scienceworld", 2 * 16) + sizes.CLIENT_GB + sizes.SERVER_GB
        )


class TestTheCores:
    def test_grow_with_the_episodes_and_never_fall_below_the_least(self, tmp_path: Path) -> None:
        runs = planned(tmp_path, "env.family=3", env="scienceworld")
        one, many, twice = (job_size([runs], at_once).cpus for at_once in (1, 128, 256))
        assert one == sizes.LEAST_CORES + sizes.SERVER_CORES
        assert twice - sizes.SERVER_CORES == pytest.approx(2 * (many - sizes.SERVER_CORES), abs=1)

    def test_follow_the_requests_per_second_of_a_forecast(self, tmp_path: Path) -> None:
        runs = planned(tmp_path)
        keep_forecasts(runs, requests=20_000.0, engine_s=100.0)
        size = job_size([runs], 64)
        assert size.client_share == pytest.approx(200 * sizes.CLIENT_MS / 1000)
        worker_ms = sizes.WORKER_MS["babyai"] + sizes.ACTIONS * sizes.ACTION_MS["babyai"]
        busy = 200 * (sizes.CLIENT_MS + worker_ms) / 1000
        assert size.cpus == ceil(busy / sizes.BUSY) + sizes.SERVER_CORES

    @pytest.mark.parametrize("requests", [1e6, 1e300])
    def test_stop_growing_when_the_main_process_has_its_core_full(
        self, tmp_path: Path, requests: float
    ) -> None:
        runs = planned(tmp_path)
        keep_forecasts(runs, requests=requests, engine_s=1e-9)
        assert job_size([runs], 64).client_share == pytest.approx(1.0)

    def test_of_an_unknown_environment_are_those_of_the_most_expensive(self, tmp_path: Path) -> None:
        known = planned(tmp_path, "env.family=3", env="scienceworld")
        other = planned(tmp_path, *SCHEDULE, env=CORRIDOR)
        assert job_size([other], 512).cpus == job_size([known], 512).cpus


class TestTheServers:
    def test_add_cores_and_memory_for_themselves_and_their_gpus(self, tmp_path: Path) -> None:
        on_cpu = job_size([planned(tmp_path)], 64)
        runs = planned(tmp_path, "model=qwen3.5-27b-2gpu")
        assert servers_of(runs) == Servers(nodes=1, number=1, gpus=2)
        on_gpus = job_size([runs], 64)
        assert on_gpus.cpus == on_cpu.cpus + 2 * sizes.GPU_CORES
        assert on_gpus.memory_gb == on_cpu.memory_gb + 2 * sizes.GPU_GB

    def test_that_run_elsewhere_add_nothing(self, tmp_path: Path) -> None:
        ours = job_size([planned(tmp_path)], 64)
        elsewhere = job_size([planned(tmp_path, "serving.url=http://127.0.0.1:8000")], 64)
        assert ours.cpus - elsewhere.cpus == sizes.SERVER_CORES
        assert ours.memory_gb - elsewhere.memory_gb == sizes.SERVER_GB


def test_jobs_of_one_array_get_what_the_largest_of_them_needs(tmp_path: Path) -> None:
    small = planned(tmp_path)
    large = planned(tmp_path, "env.family=3", "model=qwen3.5-27b", env="scienceworld")
    largest = job_size([large], 64)
    assert job_size([small, large], 64) == JobSize(largest.cpus, largest.memory_gb, largest.client_share)
