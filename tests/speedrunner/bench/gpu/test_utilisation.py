"""The means of a server's load between two readings; tests/engine/test_gpu_steps.py has real ones."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from serving.engine.endpoint import Endpoint
from serving.engine.gpus import GpuReading
from serving.engine.step_log import LoggedStep
from speedrunner.bench.gpu.utilisation import Watch, describe_steps

pytestmark = pytest.mark.process


def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A watch of a server on a GPU with a driver that hangs, and whose processes are not here."""
    monkeypatch.setattr(pynvml, "nvmlInit", signal.pause)
    monkeypatch.setattr("serving.engine.gpus.DRIVER_S", 0.1)
    config = SimpleNamespace(gpus=1, all_gpus=1)
    deployment: Any = SimpleNamespace(
        endpoint=Endpoint.parse("unix:/nowhere/http"), model_config=config, server=None
    )
    return Watch(deployment)


def test_the_step_and_the_cores_are_means_and_what_is_not_reported_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    each = watch(monkeypatch)
    each.samples = [GpuReading(busy=0.5, memory_mib=1000.0), GpuReading(busy=0.7, memory_mib=1000.0)]
    before = {"time": 50.0, "steps": 10.0, "CPU cores, EngineCore": 30.0}
    after = {"time": 52.0, "steps": 110.0, "CPU cores, EngineCore": 31.0, "CPU cores, API server": 0.5}
    row = each.row(before, after)
    assert (row["steps"], row["ms a step"]) == (100, 20.0)
    assert (row["CPU cores, EngineCore"], row["CPU cores, API server"]) == (0.5, 0.25)
    assert row["GPU busy"] == pytest.approx(0.6)
    assert (row["GPU power, W"], row["GPU memory, MiB"]) == (None, 1000.0)


def test_a_server_that_cannot_be_read_has_its_reasons_and_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    each = watch(monkeypatch)
    assert each.notes[0].startswith("The GPUs cannot be read: the NVIDIA driver does not answer")
    assert each.notes[1].startswith("The processes of the server at unix:/nowhere/http cannot be found")
    row = each.row({"time": 0.0, "steps": 5.0}, {"time": 1.0, "steps": 5.0})
    assert {name: value for name, value in row.items() if value is not None} == {"steps": 0}


def test_steps_are_split_into_those_that_only_decode_and_mixed_ones() -> None:
    steps = [
        LoggedStep(10.00, 8, 0, 0, "full"),
        LoggedStep(10.02, 8, 0, 0, "full"),
        LoggedStep(10.04, 8, 0, 2, "full"),
        LoggedStep(10.09, 10, 90, 0, "none"),
        LoggedStep(19.00, 1, 400, 0, "none"),  # the engine had nothing to do before it
    ]
    row = describe_steps(steps)
    assert row["requests running"] == pytest.approx((8 + 8 + 10) / 3)
    assert row["requests waiting"] == pytest.approx(2 / 3)
    assert row["decode-only steps"] == row["steps with a full CUDA graph"] == pytest.approx(2 / 3)
    assert row["decode-only step, ms"] == pytest.approx(20)
    assert (row["mixed step, ms"], row["prefill tokens of a mixed step"]) == (pytest.approx(50), 90)
    assert set(describe_steps([]).values()) == {None}
