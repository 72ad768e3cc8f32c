"""The CUDA toolkit that compiles kernels for a GPU server's libraries at its first start.

vLLM samples with FlashInfer, and computes FP8 layers with DeepGEMM on Hopper and newer GPUs. Both run nvcc
when they are first used, and the server ends if that fails. So `find_toolkit` compiles a small kernel first,
and a server without a working nvcc uses neither.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

DEFAULT_HOME = Path("/usr/local/cuda")
PACKAGES = Path(sysconfig.get_path("purelib"))

PROGRAMS = str(Path(sys.executable).parent)
"""Folder of the interpreter's own programs, including ninja."""

DEEP_GEMM_NVCC = (12, 9)
"""DeepGEMM is used only with this nvcc or a newer one."""

NVCC_S = 120.0
"""Longest wait for one run of the compiler, in seconds."""

TRIAL = """\
#include <cuda_runtime_api.h>
#if CUDART_VERSION != __CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10
#error "nvcc and cuda_runtime_api.h are of different versions of CUDA"
#endif
#include <curand_kernel.h>
__global__ void fill(int *numbers) { numbers[threadIdx.x] = 1; }
"""

REMEDY = "set CUDA_HOME to a complete CUDA toolkit (module load cuda, if your site has it)"


class Problem(msgspec.Struct, frozen=True):
    """One reason why a server cannot start, or not with everything.

    Attributes:
        text: what is wrong, in one line.
        remedy: what to do.
        fatal: whether no server can start at all.
    """

    text: str
    remedy: str
    fatal: bool = False


class Toolkit(msgspec.Struct, frozen=True):
    """The tools with which a GPU server compiles kernels.

    Attributes:
        nvcc: the CUDA compiler; `None` if there is none.
        version: its version, such as (13, 0).
        problems: why kernels cannot be compiled; empty if a trial was compiled.
    """

    nvcc: Path | None
    version: tuple[int, int]
    problems: list[Problem]

    def settings(self) -> dict[str, str]:
        """Return the environment variables that keep a server from compiling kernels that this toolkit cannot
        compile."""
        if self.problems or self.nvcc is None:
            return {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0"}
        deep_gemm = {} if self.version >= DEEP_GEMM_NVCC else {"VLLM_USE_DEEP_GEMM": "0"}
        return {"CUDA_HOME": str(self.nvcc.parent.parent), **deep_gemm}


def server_path(environment: Mapping[str, str]) -> str:
    """Return a server's PATH: the interpreter's own programs come first."""
    return os.pathsep.join((PROGRAMS, environment.get("PATH", os.defpath)))


def find_toolkit(environment: Mapping[str, str] | None = None) -> Toolkit:
    """Find the CUDA toolkit that a server would use, and what it lacks.

    It is in `CUDA_HOME` or `CUDA_PATH` if one is set, as FlashInfer has it; otherwise the nvcc on the PATH,
    in /usr/local/cuda, or among the environment's Python packages. A second call with the same environment
    compiles nothing.

    Args:
        environment: the server's environment variables; by default this process's.
    """
    given = os.environ if environment is None else environment
    return _find_toolkit(tuple(sorted({**given, "PATH": server_path(given)}.items())))


@cache
def _find_toolkit(variables: tuple[tuple[str, str], ...]) -> Toolkit:
    own = dict(variables)
    problems = list(_triton_problems(own))
    home = next((each for each in _homes(own) if (each / "bin" / "nvcc").is_file()), None)
    if home is None:
        chosen = _chosen_home(own)
        where = f"CUDA_HOME is {chosen}" if chosen else f"neither on the PATH nor in {DEFAULT_HOME}"
        return Toolkit(None, (0, 0), [*problems, Problem(f"nvcc is missing: {where}", REMEDY)])
    nvcc = home / "bin" / "nvcc"
    release = re.search(r"release (\d+)\.(\d+)", _run([str(nvcc), "--version"], own)[1])
    if not problems and (failure := _compile_trial(nvcc, own)):
        problems.append(Problem(f"{nvcc} cannot compile a small kernel: {failure}", REMEDY))
    return Toolkit(nvcc, (int(release[1]), int(release[2])) if release else (0, 0), problems)


def _chosen_home(environment: Mapping[str, str]) -> str | None:
    return environment.get("CUDA_HOME") or environment.get("CUDA_PATH")


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders in which a toolkit may be; FlashInfer's choice is the first."""
    if chosen := _chosen_home(environment):
        yield Path(chosen)
        return
    if on_path := shutil.which("nvcc", path=environment["PATH"]):
        for nvcc in (Path(on_path), Path(on_path).resolve()):
            if (nvcc.parent.parent / "include" / "cuda_runtime_api.h").exists():  # otherwise it is a wrapper
                yield nvcc.parent.parent
    yield from (DEFAULT_HOME, *sorted(PACKAGES.glob("nvidia/cu*"), reverse=True))


def _triton_problems(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Check what Triton needs to compile its launchers, without which no GPU server starts."""
    chosen = environment.get("CC", "").split()
    names = chosen[:1] or ["gcc", "clang"]
    if not any(shutil.which(name, path=environment["PATH"]) for name in names):
        text = f"the C compiler is missing: {' or '.join(names)} is not on the PATH"
        yield Problem(text, "install gcc and g++ (module load gcc, if your site has it)", fatal=True)
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        text = f"Python's headers are missing: {headers} has no Python.h"
        yield Problem(text, "install python3-dev, or use a Python that has its headers", fatal=True)


def _compile_trial(nvcc: Path, environment: Mapping[str, str]) -> str:
    """Compile and link a kernel for a shared library, as FlashInfer does. Return why that failed, or
    nothing."""
    host = ["-ccbin", environment["CC"]] if environment.get("CC") else []
    with tempfile.TemporaryDirectory(prefix="speedrunner-nvcc-") as folder:
        source = Path(folder, "trial.cu")
        source.write_text(TRIAL)
        command = [str(nvcc), *host, "-Xcompiler", "-fPIC", "-shared", "--cudart", "shared", str(source)]
        status, output = _run([*command, "-o", f"{folder}/trial.so"], environment)
    if status == 0:
        return ""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it prints nothing"]
    return next((line for line in lines if re.search(r"error|cannot find|not found", line)), lines[-1])


def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Return a program's exit status and all its output; status 1 if it cannot run to its end."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=NVCC_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout
