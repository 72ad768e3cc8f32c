"""GPUs as a faked driver reports them, and those that `CUDA_VISIBLE_DEVICES` chooses."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pynvml
import pytest
from msgspec.structs import replace

from serving.engine.gpus import VISIBLE, GpuReading, Nvml, device_settings, read_gpus
from tests.gpu_kinds import A100, H100, SECOND, fake_driver


def test_a_gpu_has_all_that_its_driver_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, H100)
    (gpu,) = read_gpus().usable
    assert gpu == H100
    assert str(gpu) == "NVIDIA H100 80GB HBM3 (80 GiB)"


def test_what_a_driver_does_not_know_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    fake_driver(monkeypatch, replace(H100, used=5120))
    for name, answer in {
        "UtilizationRates": lambda gpu: SimpleNamespace(gpu=87, memory=3),
        "PowerUsage": refuse,
        "TotalEnergyConsumption": lambda gpu: 9123456789012,
        "ComputeRunningProcesses": lambda gpu: [SimpleNamespace(pid=11), SimpleNamespace(pid=12)],
        "CudaComputeCapability": refuse,
    }.items():
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", answer)
    assert read_gpus().installed == [replace(H100, used=5120, capability=(0, 0))]
    reading = Nvml().read(H100.uuid)
    assert reading == GpuReading(0.87, None, 9123456789.012, 5120, frozenset({11, 12}))
    assert Nvml().read("unknown") == GpuReading()


def test_a_driver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, H100)
    monkeypatch.setattr(pynvml, "nvmlInit", signal.pause)
    monkeypatch.setattr("serving.engine.gpus.DRIVER_S", 0.1)
    report = read_gpus()
    assert (report.usable, report.failure) == ([], "the NVIDIA driver does not answer within 0.1 s")
    assert Nvml(report.failure).read(H100.uuid) == GpuReading()


def test_without_a_driver_nothing_is_read_and_the_reason_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert Nvml().failure.startswith("this machine has no NVIDIA driver")
    assert Nvml().read(H100.uuid) == GpuReading()


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("2,0", ["2", "0"]),
        (" 1 , 2 ", ["1", "2"]),
        ("GPU-bbbb-2222", ["GPU-bbbb-2222"]),
        ("GPU-cc,GPU-a", ["GPU-cccc-3333", "GPU-aaaa-1111"]),  # in full, which vLLM needs
        ("", []),
        ("-1", []),
        ("7", []),
        ("0,7,1", ["0"]),
        ("GPU-bbbb-2222,GPU-ffff,GPU-a", ["GPU-bbbb-2222"]),
        ("GPU-", []),
        ("NoDevFiles", []),
        ("0,1,0", []),
        ("1,GPU-bbbb", []),
    ],
)
def test_those_are_visible_that_cuda_would_show(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, expected: list[str]
) -> None:
    fake_driver(monkeypatch, H100, SECOND, A100)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert [gpu.id for gpu in read_gpus().usable] == expected


def test_a_process_sees_its_gpus_by_the_numbers_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, H100, SECOND)
    pair = read_gpus().usable
    order = "CUDA_DEVICE_ORDER"
    assert device_settings(pair) == {VISIBLE: "0,1", order: "PCI_BUS_ID"}
    monkeypatch.setenv(order, "FASTEST_FIRST")
    assert device_settings(pair)[order] == "FASTEST_FIRST"
    assert device_settings([]) == {}
