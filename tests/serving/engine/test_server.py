"""The server's processes, shown with small stand-ins for vLLM that take the same flags."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from serving.engine.endpoint import attach
from serving.engine.server import (
    COMPUTE_NICENESS,
    TEMPORARY_CACHES,
    USUAL_CACHES,
    VllmServer,
    cache_settings,
    find_telling_lines,
    read_new_lines,
)
from serving.errors import ServerFailed
from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT, load_model_config
from tests.processes import HANGS_S, all_end, tree
from tests.stand_in_server import HEALTHY

# A stubborn tree: the server and its children ignore SIGINT, one of them in a session of its own.
STUBBORN = (
    """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sleeper = [sys.executable, "-c", "import time; time.sleep(1000)"]
subprocess.Popen(sleeper)
subprocess.Popen(sleeper, start_new_session=True)
"""
    + HEALTHY
)

DYING = """
import sys, time
print("(APIServer pid=7) INFO 01-01 00:00:00 [api.py:1] loading", flush=True)
print("(EngineCore pid=9) ERROR 01-01 00:00:00 [core.py:2] Traceback (most recent call last):")
print("(EngineCore pid=9) ERROR 01-01 00:00:00 [core.py:2]   File 'x', line 1, in f")
print("(EngineCore pid=9) ERROR 01-01 00:00:00 [core.py:2] ValueError: no room for the cache")
print("Traceback (most recent call last):")
print("RuntimeError: Engine core initialization failed. See root cause above.")
sys.exit(3)
"""

SILENT = """
import time
print("(EngineCore pid=9) INFO 01-01 00:00:00 [runner.py:1] Starting to load model m...", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def server_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Makes servers that run a stand-in; whatever a test leaves running is killed."""
    made: list[VllmServer] = []

    def make(script: str) -> VllmServer:
        file = tmp_path / f"stand_in_{len(made)}.py"
        file.write_text(script)
        monkeypatch.setattr("serving.engine.server.API_SERVER", (sys.executable, str(file)))
        log = tmp_path / "logs" / "server.log"
        made.append(VllmServer(load_model_config("tiny-random"), log))
        return made[-1]

    yield make
    for server in made:
        server.kill()


def folder(server: VllmServer) -> Path:
    assert server.endpoint.socket is not None
    return server.endpoint.socket.parent


@pytest.mark.process
async def test_start_waits_for_health_and_stop_leaves_nothing(server_of) -> None:
    server = server_of(HEALTHY)
    assert not server.alive
    await server.start()
    assert server.alive
    assert stat.S_IMODE(folder(server).stat().st_mode) == 0o700
    await attach(server.endpoint, "tiny-random")
    processes = tree(server.pid)
    await server.stop()
    assert not server.alive
    assert server.pid is None
    assert all_end(processes)
    assert not folder(server).exists()
    await server.stop()


@pytest.mark.process
@pytest.mark.parametrize(("gpus", "niceness"), [(0, COMPUTE_NICENESS), (1, 0)])
async def test_on_a_cpu_the_server_gives_way(server_of, gpus: int, niceness: int) -> None:
    server = server_of(STUBBORN)
    server.model_config = msgspec.structs.replace(server.model_config, gpus=gpus)
    await server.start()
    guard, api, *below = tree(server.pid)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert guard.nice() == own
    assert [process.nice() for process in (api, *below)] == [min(own + niceness, 19)] * 3


@pytest.mark.process
async def test_the_command_is_built_from_the_model_config(server_of) -> None:
    server = server_of(HEALTHY)
    line = " ".join(server.command)
    model = CHECKOUT / ".cache/models/tiny-random"
    assert f"--model {model} --served-model-name tiny-random --max-model-len" in line
    assert "--dtype float32" in line
    assert f"--uds {server.endpoint.socket}" in line
    assert "--block-size 32" in line
    for setting in ("VLLM_CPU_KVCACHE_SPACE=1 ", "VLLM_HOST_IP=127.0.0.1 ", "GLOO_SOCKET_IFNAME=lo "):
        assert setting in server.shell_line
    await server.start()
    program = tree(server.pid)[1]
    assert program.cmdline() == server.command
    assert program.environ()["VLLM_CPU_KVCACHE_SPACE"] == "1"
    programs = str(Path(sys.executable).parent)  # the interpreter's come first
    assert server.shell_line.startswith(f'PATH={programs}:"$PATH" ')
    assert program.environ()["PATH"] == f"{programs}:{os.environ['PATH']}"


def test_a_server_on_gpus_does_not_run_nvcc_unless_the_user_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (off := ("VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_DEEP_GEMM")):
        monkeypatch.delenv(name, raising=False)
    model_config = load_model_config("tiny-random")

    def line(model_config: ModelConfig) -> str:
        return VllmServer(model_config, tmp_path / "log").shell_line

    assert not any(name in line(model_config) for name in off)
    on_gpu = msgspec.structs.replace(model_config, gpus=1)
    assert all(f" {name}=0 " in line(on_gpu) for name in off)
    env = {**model_config.server.env, "VLLM_USE_FLASHINFER_SAMPLER": 1}
    chosen = msgspec.structs.replace(on_gpu, server=msgspec.structs.replace(model_config.server, env=env))
    assert " VLLM_USE_FLASHINFER_SAMPLER=1 " in line(chosen)
    monkeypatch.setenv("VLLM_USE_DEEP_GEMM", "1")  # the user's own choice
    assert " VLLM_USE_DEEP_GEMM=" not in line(on_gpu)


@pytest.mark.process
async def test_a_server_that_dies_fails_the_start_at_once_with_the_cause(server_of) -> None:
    server = server_of(DYING)
    with pytest.raises(ServerFailed) as caught:
        await server.start()
    first, *rest = str(caught.value).splitlines()
    assert first == "the server of model 'tiny-random' ended with status 3: ValueError: no room for the cache"
    assert f"  log: {server.log}" in rest
    assert f"  command: {server.shell_line}" in rest
    assert not server.alive
    assert not folder(server).exists()


@pytest.mark.process
async def test_a_server_that_never_becomes_healthy_is_given_up_and_ended(server_of) -> None:
    server = server_of(SILENT)
    told: list[float] = []
    processes: list[psutil.Process] = []

    def progress(seconds: float, line: str) -> None:
        told.append(seconds)
        processes.extend(tree(server.pid))
        if line.startswith("Starting to load model"):
            server._start_timeout_s = 0.5  # which has passed

    with pytest.raises(
        ServerFailed,
        match=r"was not healthy after 0\.5 s \(serving\.start_timeout_s\): Starting to load model m\.\.\.",
    ):
        await server.start(progress)
    assert told == sorted(told)
    assert processes
    assert all_end(processes)


@pytest.mark.process
async def test_when_the_server_is_killed_its_children_go(server_of) -> None:
    server = server_of(STUBBORN)
    await server.start()
    processes = tree(server.pid)
    processes[1].kill()
    assert all_end(processes)
    assert not server.alive
    assert "was killed by SIGKILL" in server.failure()


@pytest.mark.process
async def test_when_the_guard_was_killed_a_stop_ends_its_session(server_of) -> None:
    server = server_of(STUBBORN)
    await server.start()
    processes = tree(server.pid)
    in_its_session = [process for process in processes if os.getsid(process.pid) == server.pid]
    processes[0].kill()
    assert all_end(processes[:2])  # the server itself dies with its guard
    await server.stop()
    assert all_end(in_its_session)
    for process in processes:  # what left the session is beyond reach without the guard: end it here
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT])
async def test_what_slurm_sends_to_each_process_of_a_job_is_for_the_owner(server_of, number) -> None:
    server = server_of(HEALTHY)
    await server.start()
    processes = tree(server.pid)
    elsewhere = [sys.executable, "-c", "import os, sys; os.kill(int(sys.argv[1]), int(sys.argv[2]))"]
    for process in processes if number != signal.SIGINT else processes[:1]:
        await (await asyncio.create_subprocess_exec(*elsewhere, str(process.pid), str(int(number)))).wait()
    await attach(server.endpoint, "tiny-random")
    assert all(process.is_running() for process in processes)
    await server.stop()
    assert all_end(processes)


@pytest.mark.process
async def test_a_cancelled_start_leaves_nothing(server_of) -> None:
    server = server_of(SILENT)
    begun = asyncio.Event()
    task = asyncio.create_task(server.start(lambda seconds, line: begun.set()))
    await begun.wait()
    processes = tree(server.pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all_end(processes)
    assert not folder(server).exists()


OWNER = """
import asyncio, sys
from pathlib import Path
import psutil
from serving.model_configs import load_model_config
from serving.engine import server as server_module

async def main():
    server_module.API_SERVER = (sys.executable, sys.argv[1])
    server = server_module.VllmServer(load_model_config("tiny-random"), Path(sys.argv[2]))
    try:
        await server.start()
        root = psutil.Process(server.pid)
        children = [child.pid for child in root.children(recursive=True)]
        print(server.endpoint.socket.parent, root.pid, *children, flush=True)
        await asyncio.sleep(1000)
    finally:
        await server.stop()

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "script", "size"),
    [
        (signal.SIGKILL, STUBBORN, 4),  # which takes the guard seconds
        *((number, HEALTHY, 2) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_when_the_owner_ends_by_a_signal_everything_goes(
    tmp_path: Path, number: signal.Signals, script: str, size: int
) -> None:
    (tmp_path / "stand_in.py").write_text(script)
    checkout = Path(__file__).parents[3]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "stand_in.py"), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=checkout,
    )
    assert owner.stdout is not None
    sockets, *pids = owner.stdout.readline().split()
    processes = [psutil.Process(int(pid)) for pid in pids]
    assert len(processes) == size
    owner.send_signal(number)
    assert owner.wait(HANGS_S) != 0
    owner.stdout.close()
    assert all_end(processes)
    assert not Path(sockets).exists()


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("", []),
        ("one\ntwo\nthree\nfour\n", ["two", "three", "four"]),
        ("  File 'x'\nValueError: a\nValueError: a\n", ["ValueError: a"]),
        ("usage: [-h]\na.py: error: unrecognized argument\n", ["a.py: error: unrecognized argument"]),
        ("vllm.EngineDeadError: EngineCore encountered an issue.\n",
         ["vllm.EngineDeadError: EngineCore encountered an issue."]),
        ("(Worker pid=1) ERROR 01-01 00:00:00 [a.py:1] torch.OutOfMemoryError: CUDA out of memory\n",
         ["torch.OutOfMemoryError: CUDA out of memory"]),
        ("\x1b[31mOSError: no\x1b[0m\n\xff\n", ["OSError: no"]),
    ],
)  # fmt: skip
def test_the_lines_that_tell(tmp_path: Path, log: str, told: list[str]) -> None:
    file = tmp_path / "log"
    file.write_text(log, encoding="latin-1")
    assert find_telling_lines(file) == told


def test_new_lines_are_read_once_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "log"
    assert read_new_lines(file, 0) == ([], 0)
    file.write_bytes(b"(EngineCore pid=1) INFO 01-01 00:00:00 [a.py:1] one\n\nshards:  0%\rshards: 50%")
    lines, end = read_new_lines(file, 0)
    assert lines == ["one", "shards:  0%"]
    with file.open("ab") as log:
        log.write(b"\rshards: 100%\n")
    lines, end = read_new_lines(file, end)
    assert lines == ["shards: 50%", "shards: 100%"]
    assert read_new_lines(file, end) == ([], end)


def below(folder: Path, settings: dict[str, str]) -> set[str]:
    return {name for name, value in settings.items() if Path(value).is_relative_to(folder)}


def test_only_what_libraries_put_into_temporary_folders_is_moved_home() -> None:
    settings = cache_settings({"TMPDIR": "/var/tmp"})
    assert below(Path.home() / ".cache", settings) == set(settings) == set(TEMPORARY_CACHES)


def test_all_caches_are_in_the_chosen_folder_but_those_that_the_user_has_placed(tmp_path: Path) -> None:
    own = tmp_path / "mine" / "caches"
    settings = cache_settings({"SPEEDRUNNER_CACHE": str(own), "TRITON_CACHE_DIR": "/elsewhere"})
    assert below(own, settings) == set(settings) == set(USUAL_CACHES) - {"TRITON_CACHE_DIR"}
    assert len(set(settings.values())) == len(settings)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("mode", "message"),
    [(0o666, "no folder for caches at HERE: File exists; "), (0o1777, "`chmod go-w HERE`")],
)
def test_no_cache_is_where_others_can_write_or_no_folder_can_be(
    tmp_path: Path, mode: int, message: str
) -> None:
    here = tmp_path / "caches"
    here.mkdir() if mode & stat.S_ISVTX else here.touch()
    here.chmod(mode)
    with pytest.raises(ServerFailed, match=re.escape(message.replace("HERE", str(here)))):
        cache_settings({"SPEEDRUNNER_CACHE": str(here)})
