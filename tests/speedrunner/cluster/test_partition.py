"""What a partition cannot give, by a stand-in of `sinfo`; tests/slurm has a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speedrunner.cluster.cluster_config import Cluster
from speedrunner.cluster.partition import find_shortage
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


def cluster(cpus: int = 2, memory_gb: int = 4, **values: object) -> Cluster:
    return Cluster(**{"gpus": 8, "cpus": cpus, "memory_gb": memory_gb, "minutes": 60, **values})  # type: ignore[arg-type]


def shortage(folder: Path, wanted: Cluster, *nodes: str, count: int = 1, gpus: int = 0) -> str:
    stand_in(folder, "sinfo", "".join(f"{node}\n" for node in nodes))
    return find_shortage(wanted, count, gpus)


def test_a_job_that_fits_lacks_nothing(folder: Path) -> None:
    assert shortage(folder, cluster(memory_gb=7), SMALL, CPU_NODE) == ""
    assert shortage(folder, cluster(16, 100, partition="gpu"), CPU_NODE, GPU_NODE, gpus=4) == ""


def test_the_largest_node_is_named_with_settings_that_fit(folder: Path) -> None:
    assert shortage(folder, cluster(8, 32), SMALL, CPU_NODE) == (
        "a job asks for 8 CPUs and 32 GB; the largest node of main has 2 CPUs and 7.81 GB."
        " Set cluster.cpus=2 cluster.memory_gb=7"
    )


def test_no_node_has_both_cores_and_gpus(folder: Path) -> None:
    assert shortage(folder, cluster(32, 64, partition="gpu"), CPU_NODE, GPU_NODE, gpus=4) == (
        "a job asks for 32 CPUs, 64 GB and 4 GPUs; the largest node of gpu has 16 CPUs, 125 GB and 4 GPUs."
        " Set cluster.cpus=16"
    )


def test_without_gpus_another_partition_is_the_way_out(folder: Path) -> None:
    assert shortage(folder, cluster(), SMALL, gpus=1).endswith(
        "has 2 CPUs, 7.81 GB and 0 GPUs. Set another cluster.partition"
    )


def test_a_model_over_several_nodes_needs_so_many(folder: Path) -> None:
    wanted = cluster(partition="gpu")
    assert shortage(folder, wanted, GPU_NODE, GPU_NODE, count=2, gpus=4) == ""
    assert shortage(folder, wanted, GPU_NODE, CPU_NODE, count=2, gpus=4) == (
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
    shortage(folder, cluster(**values), SMALL)
    arguments, _ = last_call(folder, "sinfo")
    assert [each for each in arguments if each.startswith("--partition")] == (
        [f"--partition={asked}"] if asked else []
    )


def test_nodes_of_another_cluster_and_unknown_ones_are_not_judged(folder: Path) -> None:
    assert shortage(folder, cluster(64), CPU_NODE) == ""  # there is no default partition
    assert shortage(folder, cluster(64, options=["--clusters=far"]), SMALL) == ""
    stand_in(folder, "sinfo", refuses="no controller")
    with pytest.raises(SlurmRefused, match="no controller"):
        find_shortage(cluster(), 1, 0)
