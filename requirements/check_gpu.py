"""Runs the tests that need vLLM's GPU build, on a machine without a GPU: `make check-gpu`.

It builds the GPU environment in `.cache/gpu-venv` if it is missing, and runs `tests/gpu` in it. If the disk
has no room for it, it prints the reason in one line and succeeds.
"""

from __future__ import annotations

import subprocess
import sys

from install import ROOT, CannotInstall, NoRoom, install

VENV = ROOT / ".cache" / "gpu-venv"
TESTS = ("tests/gpu", "tests/test_packages.py")


def main() -> None:
    """Build the environment and run the tests. The exit status is theirs."""
    try:
        install("gpu", VENV)
    except NoRoom as reason:
        print(f"check-gpu is skipped: {reason}", flush=True)
        return
    except CannotInstall as error:
        sys.exit(f"error: {error}")
    command = (VENV / "bin" / "python", "-m", "pytest", *TESTS)
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
