"""The CUDA toolkit, shown with small programs in place of nvcc and the other compilers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.engine import toolkit
from serving.engine.toolkit import Toolkit, find_toolkit
from tests.golden_tables import Golden, table

pytestmark = pytest.mark.process

Install = Callable[..., Path]


def program(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on the PATH of a machine without CUDA. It has compilers and Python.h."""
    programs = tmp_path / "bin"
    for name in ("gcc", "c++"):
        program(programs / name, "exit 0")
    headers = tmp_path / "python" / "include"
    headers.mkdir(parents=True)
    (headers / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(headers))
    monkeypatch.setattr(toolkit, "PROGRAMS", str(tmp_path / "python" / "bin"))
    monkeypatch.setattr(toolkit, "DEFAULT_HOME", tmp_path / "usr-local-cuda")
    monkeypatch.setattr(toolkit, "PACKAGES", tmp_path / "site-packages")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(toolkit, "_find_toolkit", toolkit._find_toolkit.__wrapped__)  # no cache
    for variable in ("CUDA_HOME", "CUDA_PATH", "CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    return programs


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Install a toolkit; its nvcc compiles nothing, and succeeds unless `compiles` is another script."""

    def install(home: str = "usr-local-cuda", nvcc: str = "13.0", compiles: str = "") -> Path:
        folder = tmp_path / home
        version = f"echo 'Cuda compilation tools, release {nvcc}, V{nvcc}.88'"
        program(folder / "bin" / "nvcc", f'if [ "$1" = --version ]; then {version}; exit; fi\n{compiles}')
        return folder

    return install


def test_a_complete_toolkit_is_used_and_named_to_the_server(install: Install) -> None:
    home = install()
    assert find_toolkit() == Toolkit(home / "bin" / "nvcc", (13, 0), [])
    assert find_toolkit().settings() == {"CUDA_HOME": str(home)}


UNLIKE = "echo 'trial.cu:1: note: see'; echo 'error: unsupported GNU version'; exit 1"
NO_NVCC = "echo 'nvcc: libraries not found'; exit 1"
UNLINKED = "echo '/usr/bin/ld: cannot find -lcudart'; exit 1"
PROBLEMS: dict[str, tuple[dict[str, str | None], Callable[[Path], object]]] = {
    "a compiler that does not suit nvcc": ({"compiles": UNLIKE}, lambda folder: None),
    "a library that is missing": ({"compiles": UNLINKED}, lambda folder: None),
    "an nvcc that does not run": ({}, lambda folder: program(folder / "usr-local-cuda/bin/nvcc", NO_NVCC)),
    "no gcc": ({}, lambda folder: (folder / "bin" / "gcc").unlink()),
    "no Python.h": ({}, lambda folder: (folder / "python/include/Python.h").unlink()),
    "no toolkit": ({}, lambda folder: shutil.rmtree(folder / "usr-local-cuda")),
}
"""How a toolkit is installed, and what is changed then."""


def describe(found: Toolkit) -> str:
    levels = {True: "failed", False: "warning"}
    lines = [f"{levels[each.fatal]}: {each.text}; {each.remedy}" for each in found.problems]
    return "\n".join([*lines, f"{found.nvcc} {found.version} {found.settings()}"])


def test_each_problem_is_named_with_its_remedy(install: Install, tmp_path: Path, golden: Golden) -> None:
    shutil.copytree(tmp_path, whole := tmp_path.with_name(f"{tmp_path.name}-whole"))
    texts = {}
    for name, (options, change) in PROBLEMS.items():
        install(**options)
        change(tmp_path)
        texts[name] = describe(find_toolkit())
        shutil.rmtree(tmp_path)
        shutil.copytree(whole, tmp_path)
    install()
    gone = {"PATH": str(tmp_path / "bin"), "CUDA_HOME": str(tmp_path / "gone")}
    texts["CUDA_HOME without a toolkit"] = describe(find_toolkit(gone))
    golden("toolkit_problems.txt", table(texts, HERE=tmp_path))


def test_deep_gemm_needs_a_newer_nvcc_than_flashinfer(install: Install) -> None:
    home = install(nvcc="12.8")
    assert find_toolkit().settings() == {"CUDA_HOME": str(home), "VLLM_USE_DEEP_GEMM": "0"}
    shutil.rmtree(home)
    install(nvcc="12.9")
    assert find_toolkit().settings() == {"CUDA_HOME": str(home)}


def test_cuda_home_is_the_users_choice_also_where_it_is_wrong(install: Install, tmp_path: Path) -> None:
    install()
    other = install("other", nvcc="12.9")
    assert find_toolkit({"PATH": str(tmp_path / "bin"), "CUDA_HOME": str(other)}).version == (12, 9)
    assert find_toolkit({"PATH": str(tmp_path / "bin"), "CUDA_PATH": str(other)}).version == (12, 9)


def test_a_wrapper_on_the_path_gives_way_to_the_toolkit_that_it_calls(
    install: Install, machine: Path
) -> None:
    home = install()
    program(machine / "nvcc", f'exec {home}/bin/nvcc "$@"')
    assert find_toolkit().nvcc == home / "bin" / "nvcc"


def test_the_compiler_among_the_packages_is_taken_last(install: Install) -> None:
    packaged = install("site-packages/nvidia/cu13")
    assert find_toolkit().nvcc == packaged / "bin" / "nvcc"
    home = install()
    assert find_toolkit().nvcc == home / "bin" / "nvcc"
