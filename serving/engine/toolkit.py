"""The CUDA toolkit that compiles kernels for a GPU server's libraries at its first start.

vLLM samples with FlashInfer, and computes FP8 layers with DeepGEMM on Hopper and newer GPUs. Both run nvcc
when they are first used, and the server ends if that fails. `find_toolkit` looks for everything that they
need and compiles a small kernel as FlashInfer does.
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
"""Longest wait for one run of a compiler, in seconds."""

TRIAL = """\
#include <cuda_runtime_api.h>
#if CUDART_VERSION != __CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10
#error "nvcc and cuda_runtime_api.h are of different versions of CUDA"
#endif
#include <curand.h>
#include <curand_kernel.h>
__global__ void fill(int *numbers) { numbers[threadIdx.x] = 1; }
extern "C" void run(int *numbers) { fill<<<1, 32>>>(numbers); }
"""

REMEDY = "set CUDA_HOME to a complete CUDA toolkit (module load cuda, if your site has it)"


class Problem(msgspec.Struct, frozen=True):
    """One reason why kernels cannot be compiled.

    Attributes:
        text: what is wrong, in one line.
        remedy: what to do.
        fatal: whether no GPU server can start at all, since Triton needs this, too, and has no substitute for
            it.
    """

    text: str
    remedy: str
    fatal: bool = False


class Toolkit(msgspec.Struct, frozen=True):
    """The tools with which a GPU server compiles kernels.

    Attributes:
        nvcc: the CUDA compiler; `None` if there is none.
        version: its version, such as (13, 0); `None` if nvcc reports none.
        problems: why kernels cannot be compiled; empty if a trial was compiled.
    """

    nvcc: Path | None
    version: tuple[int, int] | None
    problems: list[Problem]

    def settings(self) -> dict[str, str]:
        """Return the environment variables that keep a server from compiling kernels that this toolkit cannot
        compile."""
        if self.problems or self.nvcc is None or self.version is None:
            return {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0"}
        deep_gemm = {} if self.version >= DEEP_GEMM_NVCC else {"VLLM_USE_DEEP_GEMM": "0"}
        return {"CUDA_HOME": str(self.nvcc.parent.parent), **deep_gemm}


def server_path(environment: Mapping[str, str]) -> str:
    """Return a server's PATH: the interpreter's own programs come first."""
    return os.pathsep.join((PROGRAMS, environment.get("PATH", os.defpath)))


def find_toolkit(environment: Mapping[str, str] | None = None) -> Toolkit:
    """Find the CUDA toolkit that a server would use, and what it lacks.

    Takes `CUDA_HOME` or `CUDA_PATH` if one is set, as FlashInfer does. Otherwise it takes the best of the
    nvcc on the PATH, /usr/local/cuda, and the nvcc among the environment's Python packages. A second call
    with the same environment compiles nothing.

    Args:
        environment: the server's environment variables; by default this process's.
    """
    given = os.environ if environment is None else environment
    return _find_toolkit(tuple(sorted({**given, "PATH": server_path(given)}.items())))


@cache
def _find_toolkit(variables: tuple[tuple[str, str], ...]) -> Toolkit:
    own = dict(variables)
    problems = list(_host_problems(own))
    found = []
    for home in _homes(own):
        version, problem = _find_version(home, own)
        if problem is None and not problems:
            problem = _compile_trial(home, own)
        found.append(Toolkit(home / "bin" / "nvcc", version, [*problems, *filter(None, [problem])]))
    if found:
        return min(found, key=lambda each: len(each.problems))
    if chosen := _choose_home(own):
        missing = Problem(f"CUDA_HOME is {chosen}, which has no bin/nvcc", f"unset it, or {REMEDY}")
    else:
        where = f"PATH, {DEFAULT_HOME} and the environment's packages have none, and CUDA_HOME is not set"
        missing = Problem(f"nvcc is missing: {where}", REMEDY)
    return Toolkit(None, None, [*problems, missing])


def _choose_home(environment: Mapping[str, str]) -> str | None:
    return environment.get("CUDA_HOME") or environment.get("CUDA_PATH") or None


def _homes(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders of toolkits with an nvcc; FlashInfer's choice is the first.

    An nvcc on the PATH may be a wrapper: its folder counts only if it has CUDA's headers.
    """
    if chosen := _choose_home(environment):
        homes = [Path(chosen)]
    else:
        homes = [DEFAULT_HOME, *sorted(PACKAGES.glob("nvidia/cu*"), reverse=True)]
        if on_path := shutil.which("nvcc", path=environment["PATH"]):
            named = [Path(on_path).parent.parent, Path(on_path).resolve().parent.parent]
            homes = [home for home in named if (home / "include" / "cuda_runtime_api.h").exists()] + homes
    return [home for home in dict.fromkeys(homes) if os.access(home / "bin" / "nvcc", os.X_OK)]


def _host_problems(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Check the requirements besides CUDA: compilers, Python's headers and ninja."""
    path = environment["PATH"]
    for language, variable, usual, fatal in (
        ("C", "CC", ("gcc", "clang"), True),
        ("C++", "CXX", ("c++",), False),
    ):
        names = (chosen.split()[0],) if (chosen := environment.get(variable, "").strip()) else usual
        if not any(shutil.which(name, path=path) for name in names):
            text = f"the {language} compiler is missing: {' or '.join(names)} is not on the PATH"
            yield Problem(text, "install gcc and g++ (module load gcc, if your site has it)", fatal)
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        yield Problem(
            f"Python's headers are missing: {headers} has no Python.h",
            f"install {package}, or build the environment with a Python that has its headers",
            fatal=True,
        )
    if shutil.which("ninja", path=path) is None:
        yield Problem("ninja is not on the PATH", "make venv KIND=gpu installs it")


def _find_version(
    home: Path, environment: Mapping[str, str]
) -> tuple[tuple[int, int] | None, Problem | None]:
    """Return the version of a toolkit's nvcc, or why it reports none."""
    nvcc = home / "bin" / "nvcc"
    _, output = _run([str(nvcc), "--version"], environment)
    if release := re.search(r"release (\d+)\.(\d+)", output):
        return (int(release[1]), int(release[2])), None
    return None, Problem(f"{nvcc} --version reports no version: {_find_error(output)}", REMEDY)


def _compile_trial(home: Path, environment: Mapping[str, str]) -> Problem | None:
    """Compile and link a kernel as FlashInfer does."""
    compiler = [str(home / "bin" / "nvcc"), *(["-ccbin", host] if (host := environment.get("CC")) else [])]
    headers = [] if home == Path("/usr") else ["-isystem", f"{home}/include"]
    libraries = [f"-L{home}/lib64", f"-L{home}/lib64/stubs", "-lcudart", "-lcuda"]
    linker = (environment.get("CXX") or "c++").split()
    with tempfile.TemporaryDirectory(prefix="speedrunner-nvcc-") as folder:
        Path(folder, "trial.cu").write_text(TRIAL)
        for command in (
            [*compiler, *headers, "--compiler-options=-fPIC", "-c", "trial.cu", "-o", "trial.o"],
            [*linker, "trial.o", "-shared", *libraries, "-o", "trial.so"],
        ):
            status, output = _run(command, environment, folder)
            if status:
                return Problem(f"{home} cannot compile a small kernel: {_find_error(output)}", REMEDY)
    return None


def _run(command: list[str], environment: Mapping[str, str], folder: str | None = None) -> tuple[int, str]:
    """Return a program's exit status and all its output; status 1 if it cannot run to its end."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=NVCC_S,
        )
    except subprocess.TimeoutExpired:
        return 1, f"{Path(command[0]).name} did not end within {NVCC_S:g} s"
    except OSError as error:
        return 1, f"{command[0]}: {error.strerror}"
    return done.returncode, done.stdout


def _find_error(output: str) -> str:
    """Return the line of a compiler's output that names the error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = (line for line in lines if re.search(r"error|cannot find|not found", line))
    return next(named, lines[-1] if lines else "it prints nothing")
