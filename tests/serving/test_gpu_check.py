"""What the start of a server says about GPUs, with a faked driver."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest
from msgspec.structs import replace

from serving.deployment import deploy
from serving.engine.gpus import Gpu
from serving.errors import ServerFailed
from serving.gpu_check import require_gpus
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.options import ServiceOptions
from tests.golden_tables import Golden, table
from tests.gpu_kinds import H100, SECOND, fake_driver
from tests.stand_in_server import HEALTHY


@dataclass(frozen=True)
class BadGpus:
    """One machine.

    Attributes:
        model: the name of the model configuration.
        gpus, error: as the driver reports them.
        environment: variables that the user has set.
        fatal: whether a server is not even started.
    """

    name: str
    gpus: Sequence[Gpu] = (H100,)
    error: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "qwen3.5-27b"
    fatal: bool = True

    def set_up(self, patch: pytest.MonkeyPatch) -> None:
        """Give this machine these GPUs and this environment."""
        fake_driver(patch, *self.gpus, error=self.error)
        for name, value in self.environment.items():
            patch.setenv(name, value)


VISIBLE = "CUDA_VISIBLE_DEVICES"

BAD_GPUS = [
    BadGpus("no driver", error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
    BadGpus("a driver that does not answer", error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
    BadGpus("no GPU", gpus=()),
    BadGpus("fewer GPUs than replicas and shards take", model="qwen3.5-27b-2gpu"),
    BadGpus("a GPU too small", gpus=(replace(H100, total=40960),)),
    BadGpus("a GPU in use", gpus=(replace(H100, used=60000),)),
    BadGpus("a GPU in use a little", gpus=(replace(H100, used=3000),), fatal=False),
    BadGpus(
        "a GPU whose slices have the memory",
        gpus=(replace(H100, problem=str(pynvml.NVML_ERROR_NO_PERMISSION)),),
        fatal=False,
    ),
    BadGpus("a GPU that needs a reset", gpus=(replace(H100, problem=str(pynvml.NVML_ERROR_RESET_REQUIRED)),)),
    BadGpus("the C compiler is missing", environment={"CC": "/nowhere/gcc"}),
    BadGpus("a UUID of no GPU", gpus=(H100, SECOND), environment={VISIBLE: "GPU-ffff"}),
    BadGpus("no visible GPU", environment={VISIBLE: ""}),
    BadGpus("a GPU named twice", gpus=(H100, SECOND), environment={VISIBLE: "0,0"}, model="qwen3.5-27b-2gpu"),
]
"""Each bad input that the documentation lists (docs/troubleshooting.md), and variants of it."""


@pytest.fixture(autouse=True)
def gpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests pass on the CPU build, which is refused first."""
    monkeypatch.setattr("serving.gpu_check.is_cpu_build", lambda: False)


async def test_each_bad_input_is_one_line_and_no_server_starts_if_it_is_fatal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    lines = {}
    for bad in BAD_GPUS:
        said: list[str] = []
        with monkeypatch.context() as patch:
            bad.set_up(patch)
            model_config = load_model_config(bad.model)
            if bad.fatal:
                with pytest.raises(ServerFailed) as error:
                    async with deploy(model_config, ServiceOptions(), log=tmp_path / "log"):
                        pass
                said.append(str(error.value))
                assert not (tmp_path / "log").exists()  # nothing was spawned
            else:
                require_gpus(model_config, said.append)
        assert not any("\n" in line for line in said)
        lines[bad.name] = "\n".join(said)
    golden("bad_gpus.txt", table(lines))


@pytest.mark.process
async def test_a_server_is_started_after_a_warning(
    tiny_model_config: ModelConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_driver(monkeypatch, replace(H100, used=3000))
    program = tmp_path / "stand_in.py"
    program.write_text(HEALTHY)
    monkeypatch.setattr("serving.engine.server.API_SERVER", (sys.executable, str(program)))
    said: list[str] = []
    model_config = replace(tiny_model_config, gpus=1)
    async with deploy(model_config, ServiceOptions(), log=tmp_path / "log", say=said.append):
        pass
    words = [line.partition(" ")[0] for line in said]
    assert [each for each in words if each != "preparing"] == ["warning:", "starting", "vLLM"]


def test_the_cpu_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, H100)
    monkeypatch.setattr("serving.gpu_check.is_cpu_build", lambda: True)
    line = "^vLLM cannot serve qwen3.5-27b here: this is vLLM's CPU build; make venv KIND=gpu$"
    with pytest.raises(ServerFailed, match=line):
        require_gpus(load_model_config("qwen3.5-27b"), print)


def test_a_server_gets_the_gpus_of_all_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, *(replace(H100, id=str(number), uuid=f"GPU-{number}") for number in range(5)))
    replicas = replace(load_model_config("qwen3.5-9b"), replicas=3)
    assert [gpu.id for gpu in require_gpus(replicas, print)] == ["0", "1", "2"]
    assert require_gpus(load_model_config("tiny"), print) == []
