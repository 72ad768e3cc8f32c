"""All checks of a machine, each with what to do."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants
from msgspec import structs

from serving.model_configs import CHECKOUT
from speedrunner.cluster import doctor
from speedrunner.cluster.doctor import examine, gpus, model_files, sandboxes
from speedrunner.cluster.needs import Needs, find_needs
from speedrunner.plain.findings import Finding, ok
from tests.golden_tables import Golden, table
from tests.gpu_kinds import A100, H100, SECOND, fake_driver
from tests.hub_server import BUNDLED, COMMIT, MODEL, hub_model_config
from tests.processes import in_namespaces

LOOK = """
from speedrunner.cluster.doctor import sandboxes
from speedrunner.cluster.needs import find_needs

(found,) = sandboxes(find_needs([]))
print(found.level, found.text, found.remedy, sep="\\n")
"""


def good(needs: Needs) -> Iterator[Finding]:
    yield ok("good", "as it should be")


def broken(needs: Needs) -> Iterator[Finding]:
    yield ok("broken", "so far")
    raise RuntimeError("what\nnobody expects")


def test_a_check_that_breaks_is_a_failure_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {"broken": broken, "good": good})
    found = examine(find_needs([]), print, lambda each: None)
    assert not found.passed
    assert [each.level for each in found.findings] == ["ok", "failed", "ok"]
    line, remedy = found.findings[1].lines()
    assert line == "FAILED       broken: could not be checked: RuntimeError: what nobody expects"
    assert "report this line" in remedy


@pytest.mark.process
class TestSandboxes:
    """Each kind is started."""

    def test_one_that_starts_is_told_with_its_strength(self) -> None:
        (found,) = sandboxes(find_needs([]))
        assert found.level == "ok"
        assert "no network" in found.text

    def test_limits_alone_are_a_warning(self) -> None:
        (found,) = sandboxes(find_needs(["sandbox=rlimits"]))
        assert found.level == "warning"
        assert found.text.startswith("it isolates nothing: ")

    def test_a_system_without_user_namespaces_is_told_with_what_to_ask_for(self) -> None:
        look = shlex.join([sys.executable, "-c", LOOK])
        closed = "echo 0 > /proc/sys/user/max_user_namespaces"
        level, text, remedy = in_namespaces(f"{closed}; {look}").splitlines()
        assert level == "failed"
        assert "exceeded" in text
        assert "ask the administrators to allow user namespaces" in text
        assert remedy.startswith("see docs/troubleshooting.md")


def found_gpus(*given: str) -> list[tuple[str, str, str, str]]:
    return [(each.level, each.name, each.text, each.remedy) for each in gpus(find_needs(given))]


def test_a_model_on_the_cpu_needs_none() -> None:
    assert found_gpus("model=tiny") == [("ok", "GPU", "none is needed", "")]


def test_one_that_fits_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, H100)
    assert found_gpus("model=qwen3.5-27b") == [
        ("ok", "GPU", "1 needed; here: NVIDIA H100 80GB HBM3 (80 GiB); driver 580.65.06", ""),
        ("ok", "compilers", "Triton finds a C compiler and Python's headers", ""),
    ]


@pytest.mark.parametrize("chosen", ["1", "GPU-b"])
def test_those_that_slurm_has_not_given_do_not_count(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    fake_driver(monkeypatch, structs.replace(A100, id="0"), SECOND)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert found_gpus("model=qwen3.5-27b")[0][2].startswith("1 needed; here: NVIDIA H100 80GB HBM3 (80 GiB);")
    level, _, text, _ = found_gpus("model=qwen3.5-27b-2gpu")[0]
    assert level == "failed"
    assert text == f"2 GPUs needed, and 1 can be used: the machine has 2, CUDA_VISIBLE_DEVICES={chosen}"


def test_a_problem_of_several_runs_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, structs.replace(H100, used=3000))
    told = found_gpus("experiment=main", "model=qwen3.5-27b")
    assert [text.startswith("GPU 0: 3,000 of") for _, _, text, _ in told].count(True) == 1


def test_more_episodes_than_the_job_s_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    (told,) = doctor.memory(find_needs(["env=babyai", "run.in_flight=1"]))
    assert told.level == "ok"
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "2000")  # MiB
    (told,) = doctor.memory(find_needs(["env=scienceworld", "env.family=3", "run.in_flight=16"]))
    assert told.level == "failed"
    assert told.text == "16 episodes of scienceworld take 9,937 MB, but 2,097 MB are free"
    assert told.remedy.startswith("run.in_flight=1, ")


@pytest.mark.process
def test_a_job_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu07")
    now = 1_800_000_000
    clock = SimpleNamespace(time=lambda: now, sleep=lambda seconds: None)
    monkeypatch.setattr("speedrunner.plain.slurm.time", clock)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(now + 3630))
    (told,) = doctor.slurm(find_needs([]))
    assert (told.level, told.text) == ("ok", "job 4711 on gpu07, 60 min left for work")
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    monkeypatch.setenv("PATH", "/nowhere")
    (told,) = doctor.slurm(find_needs([]))
    assert (told.level, told.text) == ("ok", "job 4711 on gpu07, without a known time limit")


def test_a_login_node_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(doctor.slurm(find_needs([]))) == []
    (tmp_path / "squeue").touch(mode=0o755)
    (told,) = doctor.slurm(find_needs(["model=qwen3.5-27b-2gpu"]))
    assert told.level == "warning"
    assert told.remedy == "srun --gres=gpu:2 speedrunner doctor model=qwen3.5-27b-2gpu"


def the(check: object, *given: str) -> Finding:
    (found,) = check(find_needs(given))  # type: ignore[operator]
    assert isinstance(found, Finding)
    return found


def test_a_run_s_folder_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    assert the(doctor.run_folders, f"run.dir={tmp_path}/one").level == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_run_s_folder_that_cannot_be_written() -> None:
    found = the(doctor.run_folders, "run.dir=/proc/runs/one")
    assert found.level == "failed"
    assert found.text.startswith("cannot be written (")


def lines_of(check: object, *given: str) -> str:
    return "\n".join(the(check, *given).lines())


def test_model_files_are_named_with_the_remedy_for_those_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    tiny = (CHECKOUT / "models/tiny.yaml").read_text()
    found = {"a bundled model": lines_of(model_files, "model=tiny")}
    with monkeypatch.context() as patch:
        patch.setattr(doctor, "model_path", lambda model_config: tmp_path / "none")
        found["a recipe that was never followed"] = lines_of(model_files)

    for name, weights in (("missing", "/nowhere"), ("bare", str(tmp_path / "weights"))):
        (tmp_path / f"{name}.yaml").write_text(tiny.replace("models/tiny/weights", weights))
    found["a folder that is missing"] = lines_of(model_files, f"model.name={tmp_path}/missing.yaml")
    shutil.copytree(CHECKOUT / "models/tiny/weights", tmp_path / "weights")
    (tmp_path / "weights/tokenizer.json").unlink()
    found["a folder without a tokenizer"] = lines_of(model_files, f"model.name={tmp_path}/bare.yaml")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    found["a hub model that was never fetched"] = lines_of(model_files, "model=qwen3-8b")
    hub_model_config(tmp_path)
    folder = tmp_path / f"models--{MODEL.replace('/', '--')}" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for name, content in BUNDLED.items():
        (folder / name).write_bytes(content)
    given = f"model.name={tmp_path / 'model.yaml'}"
    found["a hub model"] = lines_of(model_files, given)
    (folder / "model.safetensors").unlink()
    found["a hub model without its weights"] = lines_of(model_files, given)

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found["a hosted model without its key"] = lines_of(model_files, "model=gpt-5.4-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    found["a hosted model with its key"] = lines_of(model_files, "model=gpt-5.4-mini")
    text = table(found, HERE=tmp_path, CHECKOUT=CHECKOUT, COMMIT=COMMIT)
    golden("doctor/model_files.txt", re.sub(r"[\d.]+ GB", "N GB", text))
