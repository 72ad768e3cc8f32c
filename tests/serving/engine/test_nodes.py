"""How the parts of a model over several nodes find each other; tests/slurm/test_nodes.py serves one."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from serving.cards import load_card
from serving.engine.meeting import MEETING, Arrival, Notice, Part, gathered, heard, joined, network, say
from serving.engine.server import VllmServer
from serving.errors import ServerFailed

HERE = "127.0.0.1"


async def test_outside_of_such_a_job_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(MEETING, raising=False)
    card = msgspec.structs.replace(load_card("tiny-random"), nodes=2)
    server = VllmServer(card, "model", tmp_path / "log")
    with pytest.raises(
        ServerFailed, match=r"^the model needs 2 nodes, and nothing waits .*`speedrunner submit"
    ):
        await server.start()
    assert not server.log.exists()
    assert "--nnodes" not in server.command
    assert "VLLM_HOST_IP" not in server.shell_line  # loopback, where nobody would find it


def test_the_parts_meet_where_the_way_to_the_other_leads() -> None:
    on_loopback = {"VLLM_HOST_IP": HERE, "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    assert network(HERE, {}) == on_loopback
    chosen = {"NCCL_SOCKET_IFNAME": "ib0"}
    assert network(HERE, chosen) == on_loopback | chosen


class TestAMeeting:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "job.meeting"

    def test_is_kept_by_the_followers_of_all_ranks_and_its_file_goes(self, file: Path) -> None:
        def follow(rank: int) -> Part:
            while (found := joined(file, HERE, rank, f"node-{rank}")) is None:
                pass
            lifeline, part = found
            with lifeline:
                return part

        with ThreadPoolExecutor(2) as pool:
            parts = [pool.submit(follow, rank) for rank in (2, 1)]
            with gathered(file, 2) as (followers, notice):
                assert [each.node for each in followers] == ["node-1", "node-2"]
                assert not file.exists()
                wanted = Part(notice.launchers, ["--model", "m"], {"OMP_NUM_THREADS": "1"})
                for each in followers:
                    say(each.lifeline, wanted)
                assert [part.result() for part in parts] == [wanted, wanted]
                assert followers[0].lifeline.recv(1) == b""

    def test_is_for_those_who_have_read_the_file_and_names_who_is_missing(self, file: Path) -> None:
        with ThreadPoolExecutor(1) as pool:
            gathering = pool.submit(lambda: gathered(file, 2, within_s=1.0).__enter__())
            while not file.exists():
                pass
            assert file.stat().st_mode & 0o777 == 0o600
            port = msgspec.json.decode(file.read_bytes(), type=Notice).port
            with socket.create_connection((HERE, port)) as stranger:
                say(stranger, Arrival("guessed", 1, "node-1"))
                assert stranger.recv(1) == b""
            with pytest.raises(ServerFailed, match=r"^0 of 2 other nodes came within 1 s; missing: 1, 2 "):
                gathering.result()
        assert list(file.parent.iterdir()) == []

    def test_takes_no_orders_from_who_got_the_port_since(self, file: Path) -> None:
        with ThreadPoolExecutor(1) as pool, socket.create_server((HERE, 0)) as other:
            file.write_bytes(msgspec.json.encode(Notice(other.getsockname()[1], "ours", "theirs")))
            joining = pool.submit(joined, file, HERE, 1, "node-1")
            asked, _ = other.accept()
            with asked:
                assert heard(asked, Arrival).rank == 1
                say(asked, Part("guessed", ["--worker-cls", "evil.Worker"], {}))
                assert joining.result() is None

    def test_is_not_to_be_had_where_nobody_asks(self, file: Path) -> None:
        assert joined(file, HERE, 1, "node-1") is None
        with socket.create_server((HERE, 0)) as closed:
            port = closed.getsockname()[1]
        file.write_bytes(msgspec.json.encode(Notice(port, "ours", "theirs")))  # of a server that was killed
        assert joined(file, HERE, 1, "node-1") is None
