"""What a partition cannot give, by a stand-in of `sinfo`; tests/slurm has a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speedrunner.cluster.cluster_config import Cluster
from speedrunner.cluster.partition import Node, find_shortage
from speedrunner.slurm import SlurmRefused
from tests.stand_in_slurm import last_call, stand_in

pytestmark = pytest.mark.process

SMALL = "main*|2|8000|(null)"
CPU_NODE = "gpu|64|256000|(null)"
GPU_NODE = "gpu|16|128000|gpu:a100:4(S:0-1),shard:8"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the stand-in."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("SBATCH_PARTITION", raising=False)
    return tmp_path


def cluster(**values: object) -> Cluster:
    return Cluster(**{"gpus": 8, "minutes": 60, **values})  # type: ignore[arg-type]


def wanted(cpus: int = 2, memory_gb: int = 4, gpus: int = 0) -> Node:
    return Node(gpus, cpus, memory_gb)


def shortage(folder: Path, job: Node, *nodes: str, partition: str | None = None, count: int = 1) -> str:
    stand_in(folder, "sinfo", "".join(f"{node}\n" for node in nodes))
    return find_shortage(cluster(partition=partition), count, job)


def test_a_job_that_fits_lacks_nothing(folder: Path) -> None:
    assert shortage(folder, wanted(memory_gb=7), SMALL, CPU_NODE) == ""
    assert shortage(folder, wanted(16, 100, gpus=4), CPU_NODE, GPU_NODE, partition="gpu") == ""


def test_the_largest_node_is_named_with_settings_that_fit(folder: Path) -> None:
    assert shortage(folder, wanted(8, 32), SMALL) == (
        "a job asks for 8 CPUs and 32 GB; the largest node of main has 2 CPUs and 7.81 GB."
        " Set cluster.cpus=2 cluster.memory_gb=7"
    )


def test_no_node_has_both_cores_and_gpus(folder: Path) -> None:
    assert shortage(folder, wanted(32, 64, gpus=4), CPU_NODE, GPU_NODE, partition="gpu") == (
        "a job asks for 32 CPUs, 64 GB and 4 GPUs; the largest node of gpu has 16 CPUs, 125 GB and 4 GPUs."
        " Set cluster.cpus=16"
    )


def test_without_gpus_another_partition_is_the_way_out(folder: Path) -> None:
    assert shortage(folder, wanted(gpus=1), SMALL).endswith(
        "has 2 CPUs, 7.81 GB and 0 GPUs. Set another cluster.partition"
    )


def test_a_model_over_several_nodes_needs_so_many(folder: Path) -> None:
    job = wanted(gpus=4)
    assert shortage(folder, job, GPU_NODE, GPU_NODE, partition="gpu", count=2) == ""
    assert shortage(folder, job, GPU_NODE, CPU_NODE, partition="gpu", count=2) == (
        "a job asks for 2 nodes, each with 2 CPUs, 4 GB and 4 GPUs; partition gpu has 1 such node"
    )


@pytest.mark.parametrize(
    ("values", "environment", "asked"),
    [
        ({}, None, None),
        ({"partition": "a"}, None, "a"),
        ({"partition": "a", "options": ["--partition=b"]}, None, "b"),
        ({"partition": "a"}, "c", "c"),
    ],
)
def test_the_partition_is_the_one_that_sbatch_uses(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, object],
    environment: str | None,
    asked: str | None,
) -> None:
    if environment:
        monkeypatch.setenv("SBATCH_PARTITION", environment)
    stand_in(folder, "sinfo", f"{SMALL}\n")
    find_shortage(cluster(**values), 1, wanted())
    arguments, _ = last_call(folder, "sinfo")
    assert [each for each in arguments if each.startswith("--partition")] == (
        [f"--partition={asked}"] if asked else []
    )


def test_nodes_of_another_cluster_and_unknown_ones_are_not_judged(folder: Path) -> None:
    assert shortage(folder, wanted(64), CPU_NODE) == ""  # there is no default partition
    stand_in(folder, "sinfo", f"{SMALL}\n")
    assert find_shortage(cluster(options=["--clusters=far"]), 1, wanted(64)) == ""
    stand_in(folder, "sinfo", refuses="no controller")
    with pytest.raises(SlurmRefused, match="no controller"):
        find_shortage(cluster(), 1, wanted())
