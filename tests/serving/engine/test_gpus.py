"""GPUs as a program in place of `nvidia-smi` reports them, and those that `CUDA_VISIBLE_DEVICES` chooses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from serving.engine.gpus import VISIBLE, Gpu, device_settings, read_gpus
from tests.stand_in_smi import A100, H100, SECOND

pytestmark = pytest.mark.process

Smi = Callable[..., None]


def test_a_gpu_has_all_that_nvidia_smi_reports(smi: Smi) -> None:
    smi(H100)
    (gpu,) = read_gpus().usable
    assert gpu == Gpu("0", "GPU-aaaa-1111", "NVIDIA H100 80GB HBM3", 81559, 4, "580.65.06", (9, 0))
    assert str(gpu) == "NVIDIA H100 80GB HBM3 (80 GiB)"


def test_numbers_that_are_not_reported_are_zero(smi: Smi) -> None:
    smi("0, GPU-aaaa-1111, NVIDIA GB10, [N/A], [N/A], 580.65.06, 12.1")
    (gpu,) = read_gpus().usable
    assert (gpu.total, gpu.used, gpu.capability) == (0, 0, (12, 1))


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
    smi: Smi, monkeypatch: pytest.MonkeyPatch, chosen: str | None, expected: list[str]
) -> None:
    smi(H100, SECOND, A100)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert [gpu.id for gpu in read_gpus().usable] == expected


def test_processes_are_named_by_gpu(smi: Smi) -> None:
    smi(H100, processes="GPU-aaaa-1111, 4711, /usr/bin/python3")
    assert read_gpus().processes == {"GPU-aaaa-1111": ["process 4711 (python3)"]}


@pytest.mark.parametrize(
    ("rows", "status", "failure"),
    [
        (["No devices were found"], 0, "nvidia-smi lists none"),
        (
            ["Failed: version mismatch", "NVML library version: 580.65"],
            18,
            "nvidia-smi: Failed: version mismatch",
        ),
    ],
)
def test_a_machine_without_gpus_reports_why_in_one_line(
    smi: Smi, rows: list[str], status: int, failure: str
) -> None:
    smi(*rows, status=status)
    report = read_gpus()
    assert (report.failure, report.usable) == (failure, [])


def test_a_machine_without_a_driver_reports_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert read_gpus().failure == "nvidia-smi is missing, so this machine has no NVIDIA driver"


def test_a_process_sees_its_gpus_by_the_numbers_of_nvidia_smi(
    smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(H100, SECOND)
    pair = read_gpus().usable
    order = "CUDA_DEVICE_ORDER"
    assert device_settings(pair) == {VISIBLE: "0,1", order: "PCI_BUS_ID"}
    monkeypatch.setenv(order, "FASTEST_FIRST")
    assert device_settings(pair)[order] == "FASTEST_FIRST"
    assert device_settings([]) == {}
