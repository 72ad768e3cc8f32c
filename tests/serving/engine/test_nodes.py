"""How the parts of a model over several nodes find each other; tests/slurm/test_nodes_on_slurm.py serves
one.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serving.engine.nodes import HEAD, PORT, node_settings, worker_rank
from serving.engine.server import VllmServer
from serving.errors import ServerFailed
from serving.model_configs import load_model_config

HERE = "127.0.0.1"
JOB = {HEAD: HERE, PORT: "20007"}
ON_LOOPBACK = {"VLLM_HOST_IP": HERE, "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*JOB, "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def server(folder: Path, rank: int = 0) -> VllmServer:
    model_config = msgspec.structs.replace(load_model_config("tiny-random"), nodes=3)
    return VllmServer(model_config, "model", folder / "log", rank=rank)


@pytest.mark.usefixtures("no_job")
class TestOutsideOfAJob:
    async def test_nothing_is_started(self, tmp_path: Path) -> None:
        own = server(tmp_path)
        with pytest.raises(ServerFailed, match=r"^the model needs 3 nodes.*`speedrunner sweep"):
            await own.start()
        assert not own.log.exists()

    def test_there_are_no_worker_nodes(self) -> None:
        with pytest.raises(ServerFailed, match="--worker-node"):
            worker_rank()


@pytest.mark.usefixtures("job")
class TestInAJob:
    def test_all_nodes_serve_with_the_same_arguments_but_for_their_rank(self, tmp_path: Path) -> None:
        head, *workers = (server(tmp_path, rank).command for rank in range(3))
        place = ["--nnodes", "3", "--node-rank", "0", "--master-addr", HERE, "--master-port", "20007"]
        assert head[-8:] == place
        for rank, worker in enumerate(workers, start=1):
            as_head = [
                word if word != str(rank) or at != len(worker) - 6 else "0" for at, word in enumerate(worker)
            ]
            socket = head.index("--uds") + 1
            assert worker[-1] == "--headless"
            assert [*as_head[:socket], head[socket], *as_head[socket + 1 : -1]] == head

    def test_the_ranks_of_worker_nodes_follow_the_head_node_s(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_PROCID", "0")
        assert worker_rank() == 1

    def test_they_meet_on_the_network_of_the_head_node(self) -> None:
        assert node_settings(JOB) == ON_LOOPBACK
