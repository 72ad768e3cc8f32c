"""GPUs and compilers, on machines that a program in place of `nvidia-smi` describes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from serving.engine.toolkit import Toolkit
from speedrunner.cluster.cluster_subject import subject_of
from speedrunner.cluster.doctor.gpu import gpus
from tests.bad_gpus import BAD_GPUS, MACHINES, BadGpus
from tests.stand_in_smi import A100, H100, SECOND

Smi = Callable[..., None]


@pytest.fixture(autouse=True)
def toolkit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete toolkit, except for tests of another: this machine may have none."""
    bad = getattr(request.node, "callspec", None)
    if bad is None or "CUDA_HOME" not in getattr(bad.params.get("bad"), "environment", {}):
        complete = Toolkit(Path("/usr/local/cuda/bin/nvcc"), (13, 0), [])
        monkeypatch.setattr("speedrunner.cluster.doctor.gpu.find_toolkit", lambda: complete)


def found(*given: str) -> list[tuple[str, str, str, str]]:
    return [(each.level, each.name, each.text, each.remedy) for each in gpus(subject_of(given))]


@pytest.mark.parametrize("bad", BAD_GPUS, ids=lambda bad: bad.name)
def test_each_bad_input_is_one_finding_with_its_remedy(
    bad: BadGpus, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bad.rows:
        smi(*bad.rows, **bad.options)
    else:
        monkeypatch.setenv("PATH", "/nowhere")
    for name, value in bad.environment.items():
        monkeypatch.setenv(name, value)
    level = "failed" if bad.fatal else "warning"
    asks = bad.remedy.startswith(MACHINES[:-1])  # the doctor gives the whole command
    remedy = f"srun --gres=gpu:{bad.remedy[-1]} speedrunner doctor model={bad.model}" if asks else bad.remedy
    name = "CUDA toolkit" if "CUDA_HOME" in bad.environment else "GPU"
    told = found(f"model={bad.model}")
    assert told.count((level, name, bad.text, remedy)) == 1
    assert (("ok", name) in [line[:2] for line in told]) == (name == "GPU" and not bad.fatal)


def test_a_model_on_the_cpu_needs_none() -> None:
    assert found("model=tiny") == [("ok", "GPU", "none is needed", "")]


def test_one_that_fits_is_ok(smi: Smi) -> None:
    smi(H100)
    assert found("model=qwen3.5-27b") == [
        ("ok", "GPU", "1 needed; here: NVIDIA H100 80GB HBM3 (80 GiB); driver 580.65.06", ""),
        ("ok", "CUDA toolkit", "it compiles a kernel", ""),
    ]


def test_replicas_take_their_own(smi: Smi) -> None:
    smi(H100, SECOND)
    assert found("model=qwen3.5-27b", "model.replicas=2")[0][0] == "ok"
    level, _, text, remedy = found("model=qwen3.5-27b-2gpu", "model.replicas=2")[0]
    assert (level, text) == ("failed", "4 GPUs needed, and 2 can be used: the machine has 2")
    assert remedy.startswith("srun --gres=gpu:4 ")


@pytest.mark.parametrize("chosen", ["1", "GPU-bbbb-2222", "GPU-b"])
def test_those_that_slurm_has_not_given_do_not_count(
    smi: Smi, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    smi(A100.replace("2, ", "0, "), SECOND)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert found("model=qwen3.5-27b")[0][2].startswith("1 needed; here: NVIDIA H100 80GB HBM3 (80 GiB);")
    level, _, text, _ = found("model=qwen3.5-27b-2gpu")[0]
    assert level == "failed"
    assert text == f"2 GPUs needed, and 1 can be used: the machine has 2, CUDA_VISIBLE_DEVICES={chosen}"


def test_an_inducer_s_server_is_judged_on_its_own_gpu(smi: Smi) -> None:
    smi(H100, SECOND.replace("81559", "24564"))
    assert found("model=qwen3.5-27b", "model.inducer_name=qwen3.5-4b")[0][0] == "ok"
    level, _, text, _ = found("model=qwen3.5-4b", "model.inducer_name=qwen3.5-27b")[0]
    assert level == "failed"
    assert text.startswith("qwen3.5-27b on 1 x NVIDIA H100 80GB HBM3 (24 GiB)")


def test_a_problem_of_several_runs_is_reported_once(smi: Smi) -> None:
    smi(H100.replace("580.65.06", "535.183.01"))
    told = found("experiment=main", "model=qwen3.5-27b")
    assert [text for _, _, text, _ in told].count(
        "the driver is 535.183.01, and the engine's CUDA 13 needs 580 or newer"
    ) == 1
