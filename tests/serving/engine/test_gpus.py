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
