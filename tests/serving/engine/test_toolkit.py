"""The CUDA toolkit, shown with small programs in place of nvcc and the other compilers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.engine import toolkit
from serving.engine.toolkit import Toolkit, find_toolkit, server_path

pytestmark = pytest.mark.process

Install = Callable[..., Path]

OFF = {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0"}


def program(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on the PATH of a machine without CUDA. It has compilers, ninja and Python.h."""
    programs = tmp_path / "bin"
    for name in ("gcc", "c++", "ninja"):
        program(programs / name, "exit 0")
    headers = tmp_path / "python" / "include"
    headers.mkdir(parents=True)
    (headers / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(headers))
    monkeypatch.setattr(toolkit, "PROGRAMS", str(tmp_path / "python" / "bin"))
    monkeypatch.setattr(toolkit, "DEFAULT_HOME", tmp_path / "usr-local-cuda")
    monkeypatch.setattr(toolkit, "PACKAGES", tmp_path / "site-packages")
    monkeypatch.setenv("PATH", str(programs))
    for variable in ("CUDA_HOME", "CUDA_PATH", "CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    return programs


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Install a toolkit; its nvcc compiles nothing, and succeeds unless `compiles` is another script."""

    def install(
        home: str = "usr-local-cuda", nvcc: str = "13.0", headers: str | None = "13000", compiles: str = ""
    ) -> Path:
        folder = tmp_path / home
        version = f"echo 'Cuda compilation tools, release {nvcc}, V{nvcc}.88'"
        program(folder / "bin" / "nvcc", f'if [ "$1" = --version ]; then {version}; exit; fi\n{compiles}')
        include = folder / "include"
        include.mkdir()
        (include / "curand.h").touch()
        if headers:
            (include / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {headers}\n")
        return folder

    return install


def texts(found: Toolkit) -> list[str]:
    return [each.text for each in found.problems]


def test_a_complete_toolkit_is_used_and_named_to_the_server(install: Install) -> None:
    home = install()
    assert find_toolkit() == Toolkit(home / "bin" / "nvcc", (13, 0), [])
    assert find_toolkit().settings() == {"CUDA_HOME": str(home)}


def test_without_a_toolkit_nothing_is_compiled_with_nvcc(tmp_path: Path) -> None:
    found = find_toolkit()
    assert (found.nvcc, found.version, found.settings()) == (None, None, OFF)
    assert texts(found) == [
        f"nvcc is missing: PATH, {tmp_path}/usr-local-cuda and the environment's packages have none,"
        " and CUDA_HOME is not set"
    ]
    assert [each.fatal for each in found.problems] == [False]


def test_deep_gemm_needs_a_newer_nvcc_than_flashinfer(install: Install) -> None:
    home = install(nvcc="12.8", headers="12080")
    assert find_toolkit().settings() == {"CUDA_HOME": str(home), "VLLM_USE_DEEP_GEMM": "0"}
    shutil.rmtree(home)
    install(nvcc="12.9", headers="12090")
    assert find_toolkit().settings() == {"CUDA_HOME": str(home)}


def test_headers_of_another_version_are_a_problem(install: Install) -> None:
    home = install(nvcc="13.5")
    found = find_toolkit()
    assert texts(found) == [
        f"{home}/bin/nvcc is 13.5, and the headers in {home}/include are those of CUDA 13.0"
    ]
    assert (found.version, found.settings()) == ((13, 5), OFF)


def test_headers_that_are_missing_are_named(install: Install) -> None:
    home = install(headers=None)
    (home / "include" / "curand.h").unlink()
    assert texts(find_toolkit()) == [
        f"{home}/include has no cuda_runtime_api.h",
        f"{home}/include has no curand.h",
    ]


def test_a_toolkit_that_cannot_compile_is_reported_with_the_compilers_error(install: Install) -> None:
    home = install(compiles="echo 'trial.cu:1: note: see'; echo 'error: unsupported GNU version'; exit 1")
    assert texts(find_toolkit()) == [f"{home} cannot compile a small kernel: error: unsupported GNU version"]


def test_a_kernel_that_cannot_be_linked_is_a_problem(install: Install, machine: Path) -> None:
    home = install()
    program(machine / "c++", "echo '/usr/bin/ld: cannot find -lcudart'; exit 1")
    assert texts(find_toolkit()) == [
        f"{home} cannot compile a small kernel: /usr/bin/ld: cannot find -lcudart"
    ]


def test_an_nvcc_that_does_not_run_is_a_problem(install: Install) -> None:
    home = install()
    program(home / "bin" / "nvcc", "echo 'nvcc: libraries not found'; exit 1")
    found = find_toolkit()
    assert (found.version, found.settings()) == (None, OFF)
    assert texts(found) == [f"{home}/bin/nvcc --version reports no version: nvcc: libraries not found"]


def test_cuda_home_is_the_users_choice_also_where_it_is_wrong(install: Install, tmp_path: Path) -> None:
    install()
    other = install("other", nvcc="12.9", headers="12090")
    assert find_toolkit({"PATH": str(tmp_path / "bin"), "CUDA_HOME": str(other)}).version == (12, 9)
    assert find_toolkit({"PATH": str(tmp_path / "bin"), "CUDA_PATH": str(other)}).version == (12, 9)
    found = find_toolkit({"PATH": str(tmp_path / "bin"), "CUDA_HOME": str(tmp_path / "gone")})
    assert texts(found) == [f"CUDA_HOME is {tmp_path}/gone, which has no bin/nvcc"]


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


@pytest.mark.parametrize(
    ("missing", "text", "fatal"),
    [
        ("gcc", "the C compiler is missing: gcc or clang is not on the PATH", True),
        ("c++", "the C++ compiler is missing: c++ is not on the PATH", False),
        ("ninja", "ninja is not on the PATH", False),
    ],
)
def test_programs_that_are_missing_are_named(
    install: Install, machine: Path, missing: str, text: str, fatal: bool
) -> None:
    install()
    (machine / missing).unlink()
    found = find_toolkit()
    assert [(each.text, each.fatal) for each in found.problems] == [(text, fatal)]
    assert found.settings() == OFF


def test_compilers_may_have_other_names(install: Install, machine: Path) -> None:
    install()
    for name in ("gcc", "c++"):
        (machine / name).rename(machine / f"our-{name}")
    path = {"PATH": str(machine)}
    assert len(find_toolkit(path).problems) == 2
    assert find_toolkit(path | {"CC": "our-gcc", "CXX": "our-c++ -m64"}).problems == []


def test_pythons_headers_are_needed_by_any_gpu_server(install: Install, tmp_path: Path) -> None:
    install()
    (tmp_path / "python" / "include" / "Python.h").unlink()
    (problem,) = find_toolkit().problems
    assert problem.text == f"Python's headers are missing: {tmp_path}/python/include has no Python.h"
    assert (problem.remedy.startswith("install python3."), problem.fatal) == (True, True)


def test_the_interpreters_programs_come_first_on_a_servers_path(tmp_path: Path) -> None:
    assert server_path({"PATH": "/a:/b"}) == f"{tmp_path}/python/bin:/a:/b"
