"""GPUs and compilers, on machines that a program in place of `nvidia-smi` describes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.engine.toolkit import Toolkit, find_toolkit
from speedrunner.experiments.cluster.cluster_subject import subject_of
from speedrunner.experiments.cluster.doctor.machine_checks import gpus
from tests.bad_gpus import BAD_GPUS
from tests.golden_tables import Golden, table
from tests.stand_in_smi import A100, H100, SECOND

Smi = Callable[..., None]


COMPLETE = Toolkit(Path("/usr/local/cuda/bin/nvcc"), (13, 0), [])


@pytest.fixture(autouse=True)
def toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete toolkit: this machine may have none."""
    monkeypatch.setattr("serving.gpu_check.find_toolkit", lambda environment: COMPLETE)


def found(*given: str) -> list[tuple[str, str, str, str]]:
    return [(each.level, each.name, each.text, each.remedy) for each in gpus(subject_of(given))]


def test_each_bad_input_is_one_finding_with_its_remedy(
    smi: Smi, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    lines = {}
    for bad in BAD_GPUS:
        with monkeypatch.context() as patch:
            bad.set_up(smi, patch)
            if "CUDA_HOME" in bad.environment:
                patch.setattr("serving.gpu_check.find_toolkit", find_toolkit)
            findings = [*gpus(subject_of([f"model={bad.model}"]))]
        told = {re.sub(" +", " ", " ".join(each.lines())): each.level for each in findings}
        own = [line for line in told if bad.concerns(line)]
        assert any(told[line] == "failed" for line in own) == bad.fatal
        lines[bad.name] = "\n".join(own)
    golden("doctor/found_gpus.txt", table(lines))


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
