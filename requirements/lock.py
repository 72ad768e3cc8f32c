"""Regenerates `cpu.lock` and `gpu.lock` from pyproject.toml, for Python 3.11 on Linux x86_64.

    .venv/bin/python requirements/lock.py [--upgrade]

Pins that still fit are kept; with `--upgrade` every package gets its newest version that fits. Only metadata
is downloaded. The locks also have the development tools, the packages that train the bundled model, and those
for exporting runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from install import PYTORCH_CPU, ROOT, VENV, lock_of, pip_settings, pip_sources


def compile_lock(kind: str, *options: str) -> bool:
    """Resolve one lock with uv, printing uv's messages on the terminal. Returns whether that worked."""
    command: list[str | Path] = [VENV / "bin" / "uv", "pip", "compile"]
    command += ["pyproject.toml"]
    command += [option for extra in (kind, "export", "train", "dev") for option in ("--extra", extra)]
    command += [
        "--python-version",
        "3.11",
        "--python-platform",
        "x86_64-manylinux_2_28",
        "--quiet",
        "--generate-hashes",
    ]
    command += ["--custom-compile-command", "python requirements/lock.py", "-o", lock_of(kind), *options]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode == 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Regenerate the locks in requirements/ from pyproject.toml.")
    parser.add_argument("--upgrade", action="store_true", help="do not keep the pins of the present locks")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    settings = pip_settings()
    os.environ.update(pip_sources("gpu", settings))
    if not compile_lock("gpu", *upgrade):
        sys.exit("error: requirements/gpu.lock cannot be resolved")
    os.environ.update(pip_sources("cpu", settings))
    cpu = [*upgrade, "--excludes", "requirements/cpu.excludes"]
    if not compile_lock("cpu", *cpu) and not compile_lock("cpu", *cpu, "--extra-index-url", PYTORCH_CPU):
        sys.exit("error: requirements/cpu.lock cannot be resolved")


if __name__ == "__main__":
    main()
