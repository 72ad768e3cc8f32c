"""What a partition cannot give, by a stand-in of `sinfo`; tests/slurm has a real one."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from speedrunner.config.slurm import SlurmRefused
from speedrunner.experiments.cluster.cluster_config import Cluster
from speedrunner.experiments.cluster.partition import Machines, find_shortage
from tests.golden_tables import Golden, table
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


def wanted(cpus: int = 2, memory_gb: int = 4, gpus: int = 0, nodes: int = 1) -> Machines:
    return Machines(gpus, cpus, memory_gb, nodes=nodes)


def shortage(folder: Path, job: Machines, *nodes: str, partition: str | None = None) -> str:
    stand_in(folder, "sinfo", "".join(f"{node}\n" for node in nodes))
    return find_shortage(cluster(partition=partition), job)


def test_a_job_that_fits_lacks_nothing(folder: Path) -> None:
    assert shortage(folder, wanted(memory_gb=7), SMALL, CPU_NODE) == ""
    assert shortage(folder, wanted(16, 100, gpus=4), CPU_NODE, GPU_NODE, partition="gpu") == ""


def test_what_no_node_can_give_is_named_with_settings_that_fit(folder: Path, golden: Golden) -> None:
    mixed = partial(shortage, folder, partition="gpu")
    assert mixed(wanted(gpus=4, nodes=2), GPU_NODE, GPU_NODE) == ""
    shortages = {
        "more cores and memory than the largest node": shortage(folder, wanted(8, 32), SMALL),
        "no node with both cores and GPUs": mixed(wanted(32, 64, gpus=4), CPU_NODE, GPU_NODE),
        "no GPUs": shortage(folder, wanted(gpus=1), SMALL),
        "one node of two": mixed(wanted(gpus=4, nodes=2), GPU_NODE, CPU_NODE),
    }
    golden("cluster/shortages.txt", table(shortages))


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
    find_shortage(cluster(**values), wanted())
    arguments, _ = last_call(folder, "sinfo")
    assert [each for each in arguments if each.startswith("--partition")] == (
        [f"--partition={asked}"] if asked else []
    )


def test_nodes_of_another_cluster_and_unknown_ones_are_not_judged(folder: Path) -> None:
    assert shortage(folder, wanted(64), CPU_NODE) == ""  # there is no default partition
    stand_in(folder, "sinfo", f"{SMALL}\n")
    assert find_shortage(cluster(options=["--clusters=far"]), wanted(64)) == ""
    stand_in(folder, "sinfo", refuses="no controller")
    with pytest.raises(SlurmRefused, match="no controller"):
        find_shortage(cluster(), wanted())
