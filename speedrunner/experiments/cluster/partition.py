"""Compare what jobs ask for with the nodes of their partition, as `sinfo` lists them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from speedrunner.config.slurm import run_slurm
from speedrunner.experiments.cluster.cluster_config import Cluster

_GPUS = re.compile(r"\bgpu:(?:[^:,()]+:)?(\d+)")


class Node(msgspec.Struct, frozen=True, order=True):
    """Resources of a node, or those that a job needs on a node. Memory is in GB (2^30 bytes)."""

    gpus: int
    cpus: int
    memory_gb: float

    def lacks(self, wanted: Node) -> list[str]:
        """Return the fields of which a job wants more."""
        return [name for name in self.__struct_fields__ if getattr(self, name) < getattr(wanted, name)]


class Machines(Node, frozen=True, kw_only=True):
    """The resources that a job needs on each of its nodes, and the number of nodes."""

    nodes: int


def find_shortage(cluster: Cluster, wanted: Machines) -> str:
    """Return in one line what a job asks for and its partition cannot give; empty if it can.

    Raises `SlurmRefused` if `sinfo` is missing or fails.
    """
    if any(each.startswith("--clusters") for each in cluster.options):
        return ""  # the nodes of another cluster
    partition, there = _read_nodes(_partition(cluster))
    fitting = [node for node in there if not node.lacks(wanted)]
    if not there or len(fitting) >= wanted.nodes:
        return ""
    nodes = "" if wanted.nodes == 1 else f"{wanted.nodes} nodes, each with "
    asked = f"a job asks for {nodes}{_describe(wanted, wanted)}"
    if fitting:
        return f"{asked}; partition {partition} has {len(fitting)} such node{'s'[: len(fitting) > 1]}"
    largest = min(there, key=lambda node: (len(node.lacks(wanted)), -node.gpus, -node.cpus, -node.memory_gb))
    fitted = [
        f"cluster.{name}={int(getattr(largest, name))}" for name in largest.lacks(wanted) if name != "gpus"
    ]
    how = " ".join(fitted) if "gpus" not in largest.lacks(wanted) else "another cluster.partition"
    return f"{asked}; the largest node of {partition} has {_describe(largest, wanted)}. Set {how}"


def _partition(cluster: Cluster) -> str | None:
    """Return the name of the partition that sbatch uses: the variable wins over the script's options."""
    options = [each.partition("=")[2] for each in cluster.options if each.startswith("--partition=")]
    return next(filter(None, [os.environ.get("SBATCH_PARTITION"), *options[-1:], cluster.partition]), None)


def _read_nodes(name: str | None) -> tuple[str, list[Node]]:
    """Return the partition's name and its nodes; `None` names the site's default."""
    chosen = [f"--partition={name}"] if name else []
    rows = [
        line.split("|")
        for line in run_slurm("sinfo", "--noheader", "--Node", *chosen, "--format=%P|%c|%m|%G").splitlines()
    ]
    own = [row for row in rows if name or row[0].endswith("*")]
    return name or next((row[0].rstrip("*") for row in own), ""), list(_parse(own))


def _parse(rows: Sequence[Sequence[str]]) -> Iterator[Node]:
    for _, cpus, memory_mib, resources, *_ in (row for row in rows if len(row) >= 4):
        if cpus.isdigit() and memory_mib.isdigit():
            yield Node(sum(map(int, _GPUS.findall(resources))), int(cpus), int(memory_mib) / 1024)


def _describe(node: Node, wanted: Node) -> str:
    """Return CPUs and memory of a node; also GPUs if some are wanted."""
    gpus = f" and {node.gpus} GPUs" if wanted.gpus else ""
    return f"{node.cpus} CPUs{',' if gpus else ' and'} {node.memory_gb:.3g} GB{gpus}"
