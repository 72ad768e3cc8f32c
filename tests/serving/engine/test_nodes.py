"""What a model over several nodes asks for; tests/slurm/test_nodes.py serves one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serving.cards import load_card
from serving.engine.nodes import followers_command, meeting, other_nodes
from serving.engine.server import VllmServer
from serving.errors import ServerFailed


@pytest.fixture(autouse=True)
def outside_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_NODELIST", "SLURM_CPUS_PER_TASK", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)


async def test_outside_of_a_job_nothing_is_started(tmp_path: Path) -> None:
    card = msgspec.structs.replace(load_card("tiny-random"), nodes=2)
    server = VllmServer(card, "model", tmp_path / "log")
    with pytest.raises(
        ServerFailed, match=r"^the model needs 2 nodes, and this is no Slurm job; `speedrunner"
    ):
        await server.start()
    assert not server.log.exists()
    assert "--nnodes" not in server.command
    assert "VLLM_HOST_IP" not in server.shell_line  # loopback, where nobody would find it


def test_without_slurms_commands_a_container_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-2]")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerFailed, match=r"srun and scontrol, which reach them, are not here: .*container"):
        other_nodes(2)


def test_the_parts_meet_where_the_way_to_the_other_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loopback = {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    assert meeting("127.0.0.1") == on_loopback
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    assert meeting("localhost") == on_loopback | {"NCCL_SOCKET_IFNAME": "ib0"}
    with pytest.raises(ServerFailed, match=r"^node no\.such\.host\.invalid cannot be reached from here: "):
        meeting("no.such.host.invalid")


def test_one_follower_starts_on_each_other_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    line = " ".join(followers_command(["b", "c"], ["--model", "m"]))
    assert line.startswith("srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=b,c --cpus-per-task=8 ")
    assert line.endswith(" -m serving.engine.follower --model m")
