"""The servers of a run with two models, each on its own GPUs, with a stand-in for vLLM and a faked driver."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml
from msgspec.structs import replace
from rich.console import Console

from serving.deployment import Deployment
from serving.model_configs import MODELS
from speedrunner.config.compose import compose
from speedrunner.runs.progress import Progress
from speedrunner.runs.servers import fit_models, serve_models
from speedrunner.runs.setup import Setup, set_up
from tests.gpu_kinds import H100, fake_driver
from tests.processes import tree
from tests.stand_in_server import HEALTHY

pytestmark = pytest.mark.process

FOUR = [replace(H100, id=str(number), uuid=f"GPU-{number}") for number in range(4)]


@pytest.fixture
def two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Setup]:
    """Configure a run whose actor and inducer are models for GPUs, served by the stand-in."""
    file = tmp_path / "stand_in.py"
    file.write_text(HEALTHY)
    monkeypatch.setattr("serving.engine.server.API_SERVER", (sys.executable, str(file)))
    monkeypatch.setattr("serving.gpu_check.is_cpu_build", lambda: False)

    def configure(**gpus: int) -> Setup:
        for name, number in gpus.items():
            model_config = yaml.safe_load((MODELS / "tiny.yaml").read_text()) | {"name": name, "gpus": number}
            model_config["server"]["flags"]["tensor-parallel-size"] = number
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(model_config))
        actor, inducer = (tmp_path / f"{name}.yaml" for name in gpus)
        return set_up(compose([f"model.name={actor}", f"model.inducer_name={inducer}"]), plays_here=False)

    return configure


def devices(deployment: Deployment) -> str:
    """What the server's own process sees."""
    assert deployment.server is not None
    assert deployment.server.pid is not None
    program: psutil.Process = tree(deployment.server.pid)[1]
    return program.environ()["CUDA_VISIBLE_DEVICES"]


@pytest.mark.parametrize(
    ("visible", "actor", "inducer"),
    [(None, "0,1", "2"), ("3,1,0", "3,1", "0"), ("GPU-3,GPU-1,GPU-0", "GPU-3,GPU-1", "GPU-0")],
)
async def test_each_of_two_servers_sees_gpus_of_its_own(
    two_models: Callable[..., Setup],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    visible: str | None,
    actor: str,
    inducer: str,
) -> None:
    fake_driver(monkeypatch, *FOUR)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    setup = two_models(one=2, two=1)
    with Progress(Console(quiet=True), 1, 0) as progress:
        models = await fit_models(setup, progress.say)
        async with serve_models(models, tmp_path, progress) as engines:
            assert (devices(engines.actor), devices(engines.others)) == (actor, inducer)
