"""What is used while something is measured: this process, a process tree, GPUs by an invented nvidia-smi."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from speedrunner.bench.resources import Resources

pytestmark = pytest.mark.process

GPU = "0, GPU-aaaa, Imaginary GPU, 81559, 4, 580.65.06, 9.0"
BUSY = "import time\nwhile True: sum(range(1000))"


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `nvidia-smi` with two GPUs that writes four samples of the chosen ones."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "nvidia-smi"
    samples = "GPU-aaaa, 1000, 300.0\\nGPU-bbbb, 10, 50\\nGPU-aaaa, 3000, 500.0\\nGPU-bbbb, [N/A], [N/A]\\n"
    program.write_text(
        f'#!/bin/sh\nfor each in "$@"; do last=$each; done\n'
        f"case $last in --loop*) echo \"$@\" > {tmp_path}/asked; printf '{samples}'; "
        " exec sleep 600;; esac\n"
        f"echo '{GPU}'\necho '{GPU.replace('0, GPU-aaaa', '1, GPU-bbbb')}'\n"
    )
    program.chmod(0o755)
    return tmp_path


async def test_memory_and_power_of_the_server_s_gpus_are_sampled(sampled: Path) -> None:
    async with Resources(None, gpus=2) as used:
        while used.gpu_mib != 3010:  # noqa: ASYNC110 - samples come from a process
            await asyncio.sleep(0.01)
    assert used.watts == 450.0  # the mean of each, summed
    assert used.gpu_mib == 3010.0  # the most of each, summed
    assert "--id=GPU-aaaa,GPU-bbbb" in (sampled / "asked").read_text()
    assert not [each for each in psutil.Process().children() if each.name() == "sleep"]


async def test_cpu_time_is_the_server_s_and_ours_apart() -> None:
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", BUSY)
    try:
        async with Resources(server.pid, gpus=0) as used:
            before = psutil.Process(server.pid).cpu_times().user
            while psutil.Process(server.pid).cpu_times().user - before < 0.3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        server.kill()
        await server.wait()
    assert used.server_cpu_s is not None
    assert used.server_cpu_s >= 0.3
    assert used.server_mb is not None
    assert used.server_mb > 1
    assert used.client_cpu_s < used.server_cpu_s + used.seconds
