"""GPUs as a program in place of `nvidia-smi` reports them, and those that `CUDA_VISIBLE_DEVICES` chooses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from serving.engine.gpus import (
    VISIBLE,
    Gpu,
    device_settings,
    gpu_processes,
    installed_gpus,
    read_gpus,
    select_gpus,
)
from tests.stand_in_smi import A100, H100, SECOND, SLICES, SPLIT

pytestmark = pytest.mark.process

Smi = Callable[..., None]


def visible_gpus() -> list[Gpu]:
    return select_gpus(installed_gpus(), os.environ.get(VISIBLE))


def ids() -> list[str]:
    return [gpu.id for gpu in visible_gpus()]


def test_a_gpu_has_all_that_nvidia_smi_reports(smi: Smi) -> None:
    smi(H100)
    (gpu,) = visible_gpus()
    assert gpu == Gpu("0", "GPU-aaaa-1111", "NVIDIA H100 80GB HBM3", 81559, 4, "580.65.06", (9, 0), False)
    assert str(gpu) == "NVIDIA H100 80GB HBM3 (80 GiB)"


def test_a_field_that_an_old_driver_does_not_know_is_named(smi: Smi) -> None:
    smi('Field "compute_cap" is not a valid field to query.', status=2)
    problem = 'Field "compute_cap" is not a valid field to query'
    line = f"nvidia-smi: {problem}, as the driver is older than 510: install a newer one"
    assert read_gpus().failure == line


def test_numbers_that_are_not_reported_are_zero(smi: Smi) -> None:
    smi("0, GPU-aaaa-1111, NVIDIA GB10, [N/A], [N/A], 580.65.06, 12.1, [N/A]")
    (gpu,) = visible_gpus()
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
    assert ids() == expected


class TestMigSlices:
    """A GPU that is split into slices, next to a whole one."""

    @pytest.fixture(autouse=True)
    def split(self, smi: Smi) -> None:
        smi(SPLIT, SECOND, slices=SLICES)

    def test_a_slice_is_visible_only_if_it_is_chosen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert ids() == ["0", "1"]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-dddd-4444")
        (part,) = visible_gpus()
        assert (part.id, part.is_slice, part.total, part.used) == ("MIG-dddd-4444", True, 40 * 1024, 0)
        assert str(part) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb (40 GiB)"

    def test_a_split_gpu_cannot_be_used_as_a_whole(self) -> None:
        report = read_gpus()
        assert [gpu.id for gpu in report.usable] == ["1"]
        assert [gpu.id for gpu in report.installed] == ["0", "1", "MIG-dddd-4444", "MIG-eeee-5555"]


def test_processes_are_named_by_gpu(smi: Smi) -> None:
    smi(H100, processes="GPU-aaaa-1111, 4711, /usr/bin/python3")
    assert gpu_processes() == {"GPU-aaaa-1111": ["process 4711 (python3)"]}


class TestWithoutGpus:
    """Why there are none, on one line."""

    def test_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        report = read_gpus()
        assert report.failure == "nvidia-smi is missing, so this machine has no NVIDIA driver"
        assert report.usable == []
        with pytest.raises(FileNotFoundError):
            visible_gpus()

    def test_a_driver_that_does_not_answer(self, smi: Smi) -> None:
        first = "Failed to initialize NVML: Driver/library version mismatch"
        smi(first, "NVML library version: 580.65", status=18)
        assert read_gpus().failure == f"nvidia-smi: {first}"
        with pytest.raises(subprocess.CalledProcessError):
            visible_gpus()

    def test_a_driver_without_a_gpu(self, smi: Smi) -> None:
        smi("No devices were found")
        assert read_gpus().failure == "nvidia-smi lists none"


def test_a_process_sees_its_gpus_by_the_numbers_of_nvidia_smi(
    smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(H100, SECOND)
    pair = visible_gpus()
    order = "CUDA_DEVICE_ORDER"
    assert device_settings(pair) == {VISIBLE: "0,1", order: "PCI_BUS_ID"}
    monkeypatch.setenv(order, "FASTEST_FIRST")
    assert device_settings(pair)[order] == "FASTEST_FIRST"
    assert device_settings([]) == {}
