"""GPUs of servers that run at the same time, with a program in place of `nvidia-smi`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from serving.cards import load_card
from serving.engine.gpu_slices import gpu_slices, slice_settings
from serving.errors import ServerFailed
from serving.model_card import ModelCard

Smi = Callable[..., None]


def model(gpus: int, replicas: int = 1, nodes: int = 1, name: str = "m") -> ModelCard:
    tiny = load_card("tiny-random")
    return msgspec.structs.replace(tiny, name=name, gpus=gpus, replicas=replicas, nodes=nodes)


def test_models_that_are_served_together_share_no_gpu(gpus: Smi) -> None:
    gpus(4)
    assert gpu_slices([model(2), model(1)]) == [("0", "1"), ("2",)]
    assert gpu_slices([model(1)]) == [("0",)]


def test_replicas_get_their_gpus_together_for_vllm_to_divide(gpus: Smi) -> None:
    gpus(4)
    assert gpu_slices([model(1, replicas=3), model(1)]) == [("0", "1", "2"), ("3",)]


def test_a_model_over_several_nodes_gets_its_part_of_this_node(gpus: Smi) -> None:
    gpus(4)
    assert gpu_slices([model(4, nodes=2), model(1)]) == [("0", "1"), ("2",)]


@pytest.mark.parametrize(
    ("chosen", "slices"),
    [
        ("3,1", [("3",), ("1",)]),
        ("GPU-0002-x,GPU-0000-x", [("GPU-0002-x",), ("GPU-0000-x",)]),
        ("GPU-0002,1", [("GPU-0002-x",), ("1",)]),
    ],
)
def test_devices_keep_the_users_choice_and_spelling(
    gpus: Smi, monkeypatch: pytest.MonkeyPatch, chosen: str, slices: list[tuple[str, ...]]
) -> None:
    gpus(4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert gpu_slices([model(1), model(1)]) == slices


def test_a_mig_slice_is_a_gpu_and_the_gpu_that_is_split_is_none(
    gpus: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(1, mig=2)
    with pytest.raises(ServerFailed, match=r"0 are visible besides 1 split into MIG slices, which CUDA_VIS"):
        gpu_slices([model(1)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-0,MIG-1")
    assert gpu_slices([model(1), model(1)]) == [("MIG-0",), ("MIG-1",)]


def test_models_on_the_cpu_ask_for_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert gpu_slices([model(0), model(0)]) == [(), ()]
    assert gpu_slices([]) == []


def test_too_few_gpus_are_reported_with_what_is_needed_and_what_is_visible(
    gpus: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(2)
    with pytest.raises(
        ServerFailed,
        match=r"^model 'a' needs 2 GPUs and model 'b' needs 1 GPU, and 2 are visible: ask Slurm for 3 GPUs"
        r" \(--gres=gpu:3\), or choose another model configuration \(speedrunner list models\)$",
    ):
        gpu_slices([model(2, name="a"), model(1, name="b")])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(ServerFailed, match=r"1 is visible \(CUDA_VISIBLE_DEVICES=1\): .*, or correct CUDA_V"):
        gpu_slices([model(2)])


def test_without_a_driver_no_gpu_is_visible(gpus: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(1, failure="NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.")
    with pytest.raises(
        ServerFailed, match=r"needs 1 GPU, and no GPU is visible: nvidia-smi says: NVIDIA-SMI"
    ):
        gpu_slices([model(1)])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerFailed, match=r"no GPU is visible: nvidia-smi cannot be asked \(No such file"):
        gpu_slices([model(1)])


def test_indices_mean_what_nvidia_smi_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert slice_settings(("2", "3")) == {
        "CUDA_VISIBLE_DEVICES": "2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert slice_settings(("2",))["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    assert slice_settings(()) == {}
