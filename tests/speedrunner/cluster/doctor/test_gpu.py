"""What `nvidia-smi` says, by a program of that name that says it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.cards import MODELS
from speedrunner.cluster.doctor.gpu import MIN_DRIVERS, cuda_major, gpus
from speedrunner.cluster.subject import subject_of

Smi = Callable[..., None]

H100 = "0, GPU-aaaa, NVIDIA H100 80GB HBM3, 81559, 4, 580.65.06, 9.0, Disabled"
SECOND = H100.replace("0, GPU-aaaa", "1, GPU-bbbb")


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """Makes the program: it prints these GPUs, and these processes that compute."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def smi(*rows: str, processes: str = "", status: int = 0) -> None:
        file = tmp_path / "nvidia-smi"
        told = "\n".join(rows)
        answer = f"case $1 in *compute-apps*) echo '{processes}';; *) echo '{told}';; esac"
        file.write_text(f"#!/bin/sh\n{answer}\nexit {status}\n")
        file.chmod(0o755)

    return smi


def found(*given: str) -> dict[str, tuple[str, str, str]]:
    return {each.name: (each.level, each.text, each.remedy) for each in gpus(subject_of(given))}


def test_a_model_on_the_cpu_needs_none() -> None:
    assert found("model=tiny") == {"GPU": ("ok", "none is needed", "")}


def test_a_machine_without_any_is_told_how_a_job_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    level, text, remedy = found("model=qwen3.5-27b")["GPU"]
    assert (level, remedy) == ("failure", "srun --gres=gpu:1 speedrunner doctor model=qwen3.5-27b")
    assert text == "1 needed, and nvidia-smi shows none (No such file or directory)"


def test_a_driver_that_does_not_answer_is_quoted(smi: Smi) -> None:
    smi("No devices were found", status=6)
    assert "(No devices were found)" in found("model=qwen3.5-27b")["GPU"][1]


def test_one_that_fits_is_ok(smi: Smi) -> None:
    smi(H100)
    told = found("model=qwen3.5-27b")
    assert {level for level, *_ in told.values()} == {"ok"}
    assert told["GPU"][1] == "1 needed; here: NVIDIA H100 80GB HBM3 (80 GiB)"
    assert told["driver"][1] == "580.65.06; CUDA 13 needs 580 or newer"
    assert told["GPU memory for qwen3.5-27b"][1] == "not computed: its weights are not here"


def test_replicas_take_their_own(smi: Smi) -> None:
    smi(H100, SECOND)
    assert found("model=qwen3.5-27b", "model.replicas=2")["GPU"][0] == "ok"
    level, text, remedy = found("model=qwen3.5-27b-2gpu", "model.replicas=2")["GPU"]
    assert (level, text) == ("failure", "4 needed, and 2 can be used here")
    assert remedy.startswith("srun --gres=gpu:4 ")


@pytest.mark.parametrize("chosen", ["1", "GPU-bbbb"])
def test_those_that_slurm_has_not_given_do_not_count(
    smi: Smi, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    smi(H100.replace("H100", "other"), SECOND)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert found("model=qwen3.5-27b")["GPU"][1] == "1 needed; here: NVIDIA H100 80GB HBM3 (80 GiB)"
    assert found("model=qwen3.5-27b-2gpu")["GPU"][0] == "failure"


def test_an_old_driver_is_named_with_what_the_lock_needs(smi: Smi) -> None:
    smi(H100.replace("580.65.06", "535.183.01"))
    level, text, remedy = found("model=qwen3.5-27b")["driver"]
    assert (level, text) == ("failure", "535.183.01, and the engine's CUDA 13 needs 580 or newer")
    assert "ask the administrators for 580" in remedy


def test_others_on_it_are_named(smi: Smi) -> None:
    smi(H100.replace(", 4,", ", 60000,"), processes="GPU-aaaa, 4711, /usr/bin/python3")
    level, text, _ = found("model=qwen3.5-27b")["GPU 0 free"]
    assert level == "failure"
    assert text == "60000 of 81559 MiB in use by process 4711 (python3); the engine asks for 92%"
    smi(H100.replace(", 4,", ", 3000,"))
    level, text, _ = found("model=qwen3.5-27b")["GPU 0 free"]
    assert (level, text) == ("warning", "3000 of 81559 MiB in use by processes that cannot be seen from here")


def test_weights_that_do_not_fit_are_told(smi: Smi, tmp_path: Path) -> None:
    smi(H100)
    folder = tmp_path / "weights"
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(60 * 10**9)  # a hole: it takes no room
    card = tmp_path / "card.yaml"
    text = (MODELS / "tiny.yaml").read_text().replace("models/tiny/weights", str(folder))
    card.write_text(text.replace("dtype:", "gpus: 1\ndtype:"))
    name = "GPU memory for tiny"
    assert found(f"model.card={card}")[name][:2] == (
        "ok",
        "60.0 GB of weights on each of 86 GB leave 13.0 GB for a cache",
    )
    smi(H100.replace("81559", "46068"))
    assert found(f"model.card={card}")[name][0] == "failure"


def test_the_lock_s_cuda_is_one_whose_driver_is_known() -> None:
    assert cuda_major() in MIN_DRIVERS
