"""Servers that passed the check at start are not checked again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from serving.deployment import ServiceOptions, deploy
from serving.engine.cache_config import CacheConfig
from serving.engine.server import VllmServer
from serving.errors import ServerFailed
from serving.model_config import ModelConfig
from serving.options import Check
from serving.probes.passed_checks import CheckedServer, has_passed, store_passed
from serving.probes.start_check import StartCheck
from serving.tokens.tokenizer import ChatTokenizer
from tests.probe_engines import Probed, sample_call
from tests.scripted_engine import Answer, Request, say

CACHES = [CacheConfig(block_size=32, num_gpu_blocks=0, enable_prefix_caching=True, match_unit=32)]
SERVER = CheckedServer(
    battery=1, model={"name": "m"}, engine="0.32.0", tokenizer="abc", caches=CACHES, started=5.0
)


class TestStore:
    """The stored results."""

    def test_a_stored_server_has_passed_and_any_other_has_not(self, tmp_path: Path) -> None:
        folder = tmp_path / "new" / "checks"
        assert not has_passed(SERVER, folder)
        store_passed(SERVER, folder)
        assert has_passed(SERVER, folder)
        (file,) = folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        coarse = [msgspec.structs.replace(CACHES[0], match_unit=640)]
        for change in (
            {"battery": 2}, {"model": {"name": "n"}}, {"engine": "0.33.0"}, {"tokenizer": "def"},
            {"caches": coarse}, {"endpoint": "unix:/s"}, {"started": 6.0},
        ):  # fmt: skip
            assert not has_passed(msgspec.structs.replace(SERVER, **change), folder), change

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"server": {}, "time": 1}', b"\xff\xfe"])
    def test_a_damaged_file_does_not_count_and_is_replaced(self, tmp_path: Path, content: bytes) -> None:
        store_passed(SERVER, tmp_path)
        (file,) = tmp_path.iterdir()
        file.write_bytes(content)
        assert not has_passed(SERVER, tmp_path)
        store_passed(SERVER, tmp_path)
        assert has_passed(SERVER, tmp_path)

    def test_the_result_of_another_server_under_this_name_does_not_count(self, tmp_path: Path) -> None:
        store_passed(SERVER, tmp_path)
        (file,) = tmp_path.iterdir()
        store_passed(other := msgspec.structs.replace(SERVER, engine="0.33.0"), tmp_path)
        file.rename(tmp_path / f"{other.digest}.json")
        assert not has_passed(other, tmp_path)

    def test_another_user_s_file_and_a_link_do_not_count(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store_passed(SERVER, tmp_path)
        (file,) = tmp_path.iterdir()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
            assert not has_passed(SERVER, tmp_path)
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
        assert not has_passed(SERVER, tmp_path)

    def test_a_folder_that_cannot_be_written_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        store_passed(SERVER, tmp_path / "file")
        assert not has_passed(SERVER, tmp_path / "file")


class TestStartCheck:
    """The check before the first episode, by `serving.check`."""

    @pytest.fixture
    def server(self, tiny_tokenizer: ChatTokenizer) -> Probed:
        return Probed(tiny_tokenizer)

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> Path:
        self.said: list[str] = []
        return tmp_path

    async def probes(
        self, bare: ModelConfig, server: Probed, folder: Path, mode: Check = "once", runs: int = 1
    ) -> int:
        """Start a process of so many runs on the server; how many probes they sent."""
        before = len(server.requests)
        async with self.checking(bare, server, folder, mode, runs):
            return len(server.requests) - before - runs  # each sends one that shows that the engine answers

    @asynccontextmanager
    async def checking(
        self, bare: ModelConfig, server: Probed, folder: Path, mode: Check, runs: int
    ) -> AsyncIterator[None]:
        options = ServiceOptions(url=str(server.endpoint))
        async with deploy(bare, options, log=Path("unused.log")) as deployment:
            check = StartCheck(deployment, mode, self.said.append, lambda line: None, folder)
            for _ in range(runs):
                async with deployment.client(lambda row: None) as model:
                    await check.require(model)
            yield

    async def test_a_server_that_passed_is_not_checked_again(
        self, bare: ModelConfig, server: Probed, folder: Path
    ) -> None:
        with server:
            assert await self.probes(bare, server, folder) > 0
            assert await self.probes(bare, server, folder) == 0
            server.started += 1.0  # a restart: it may have other flags
            assert await self.probes(bare, server, folder) > 0
            assert self.said == []

    async def test_another_configuration_is_checked(
        self, bare: ModelConfig, server: Probed, folder: Path
    ) -> None:
        prices = msgspec.structs.replace(bare.prices, output=99.0)
        with server:
            assert await self.probes(bare, server, folder) > 0
            assert await self.probes(msgspec.structs.replace(bare, prices=prices), server, folder) == 0
            assert await self.probes(msgspec.structs.replace(bare, context=999), server, folder) > 0

    async def test_always_checks_each_time_and_once_for_all_runs_of_a_process(
        self, bare: ModelConfig, server: Probed, folder: Path
    ) -> None:
        with server:
            once = await self.probes(bare, server, folder, "always")
            assert once > 0
            assert await self.probes(bare, server, folder, "always", runs=3) == once

    async def test_never_says_that_nothing_is_checked(
        self, bare: ModelConfig, server: Probed, folder: Path
    ) -> None:
        with server:
            assert await self.probes(bare, server, folder, "never") == 0
            (line,) = self.said
            assert line.startswith(
                "serving.check=never: skipping the check of tool calls and prefix cache of http://127.0.0.1:"
            )
            assert await self.probes(bare, server, folder) > 0

    async def test_a_failed_check_is_never_stored(
        self, bare: ModelConfig, tiny_tokenizer: ChatTokenizer, folder: Path
    ) -> None:
        def broken(request: Request) -> Answer:
            return say("no call") if request.tools else sample_call(request)

        with Probed(tiny_tokenizer, broken) as server:
            for _ in range(2):
                with pytest.raises(ServerFailed, match="does not enforce the grammar"):
                    await self.probes(bare, server, folder)
            assert not any(os.scandir(folder))
            server.script = sample_call
            assert await self.probes(bare, server, folder) > 0

    async def test_a_server_that_does_not_report_its_start_is_checked_each_time(
        self, bare: ModelConfig, server: Probed, folder: Path
    ) -> None:
        server.started = None
        with server:
            assert await self.probes(bare, server, folder) > 0
            assert await self.probes(bare, server, folder) > 0

    async def test_our_own_server_passes_again_whenever_it_is_started(
        self, bare: ModelConfig, server: Probed, folder: Path, tmp_path: Path
    ) -> None:
        with server:
            for expected in (True, False):
                options = ServiceOptions(url=str(server.endpoint))
                async with deploy(bare, options, log=Path("unused.log")) as deployment:
                    deployment.server = VllmServer(bare, "unused", tmp_path / "log")
                    check = StartCheck(deployment, "once", self.said.append, lambda line: None, folder)
                    before = len(server.requests)
                    async with deployment.client(lambda row: None) as model:
                        await check.require(model)
                    assert (len(server.requests) - before > 1) == expected
                server.started += 1.0
