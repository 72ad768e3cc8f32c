"""Builds `.venv` from a full lock, unless the existing one was built from it.

    python3 requirements/install.py [cpu|gpu] [--venv FOLDER]

`make` calls it, with a Python that is new enough. Without an argument, the kind of the existing `.venv`
stays, or `cpu` is built. Only the standard library is used, since this runs before anything is installed. A
virtual environment is complete if it has the stamp, which is written last. An interrupted set-up has no stamp
and is started over, from uv's cache.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTORCH_CPU = "https://download.pytorch.org/whl/cpu"

NO_TORCH = (
    f"PyTorch's CPU build is neither in the configured package index nor in {PYTORCH_CPU}; see above."
    " Download the wheel of requirements/cpu.lock on another machine and run `PIP_FIND_LINKS=FOLDER make"
    " venv`, or use a mirror: `PIP_FIND_LINKS=https://MIRROR/whl/cpu/torch/ make venv`"
)


class CannotInstall(Exception):
    """Packages cannot be installed here. The message is one line for users."""


def lock_of(kind: str) -> Path:
    """Return the lock file of a kind of installation, `cpu` or `gpu`."""
    return ROOT / "requirements" / f"{kind}.lock"


def pip_settings() -> dict[str, list[str]]:
    """Return the values of pip's configuration, from its files and from the environment, by name."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    settings: dict[str, list[str]] = {}
    for section in ("global", "install", ":env:"):  # in the order of pip's own precedence, lowest first
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", listing, re.MULTILINE):
            settings[name] = ast.literal_eval(value).split()
    return settings


def pip_sources(kind: str, settings: dict[str, list[str]]) -> dict[str, str]:
    """Return the package sources of pip's configuration as environment variables for uv, which does not read
    it. A password in an argument would be in the process list.

    Each package comes from one index, the configured one. Other indexes with a package of the same name are
    not used (`extra-index-url`). Folders of wheels (`find-links`) are used only for the CPU build, since the
    usual index lacks its torch.
    """
    variables = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE", "trusted-host": "UV_INSECURE_HOST"}
    found = {variables[name]: " ".join(settings[name]) for name in variables if name in settings}
    if kind == "cpu" and "find-links" in settings:  # a local torch for CPUs would fit the pin of the GPU lock
        found["UV_FIND_LINKS"] = ",".join(settings["find-links"])
    return found


def locked(kind: str, package: str) -> Path:
    """Write a file with one package's lines of a lock, including its hashes. Return its path."""
    lines = lock_of(kind).read_text("utf-8")
    (block,) = re.findall(rf"^{package}==\S+(?: \\\n    --hash=\S+)+", lines, re.MULTILINE)
    file = ROOT / ".cache" / f"{package}.lock"
    file.parent.mkdir(exist_ok=True)
    file.write_text(block + "\n", encoding="utf-8")
    return file


def run(*command: str | Path, errors: int | None = None) -> bool:
    """Run a command, which prints its own progress and errors (or writes `errors`). Returns whether it
    succeeded."""
    return subprocess.run(command, cwd=ROOT, stderr=errors, check=False).returncode == 0


def must(or_else: str, *command: str | Path) -> None:
    """Run a command. Raises `CannotInstall` with the consequence if it fails."""
    if not run(*command):
        raise CannotInstall(or_else)


def install_packages(kind: str, venv: Path) -> None:
    """Build the environment from scratch and install the lock into it, with uv."""
    must(f"cannot make {venv}", sys.executable, "-m", "venv", "--clear", venv)
    python = venv / "bin" / "python"
    # Files that differ from their hashes in the lock are rejected, wherever they come from.
    checked = ("--no-deps", "--require-hashes")
    failed = "a package cannot be installed; see above"
    must(failed, python, "-m", "pip", "install", *checked, "--quiet", "-r", locked(kind, "uv"))
    os.environ.update(pip_sources(kind, pip_settings()))
    command: list[str | Path] = [venv / "bin" / "uv", "pip", "install", "--python", python, *checked]
    command += ["--compile-bytecode"]  # now, since an installation may be read-only later
    command += ["--build-constraints", lock_of(kind)]  # for the few packages that come as source
    if kind == "cpu":
        # The CPU build first, since the default package index only has the CUDA build of the same version.
        torch = (*command, "-r", locked("cpu", "torch"))
        print("Installing PyTorch's CPU build", flush=True)
        with tempfile.TemporaryFile() as errors:
            if not run(*torch, errors=errors.fileno()):
                print(f"The configured package index does not give it: trying {PYTORCH_CPU}", flush=True)
                if not run(*torch, "--default-index", PYTORCH_CPU):
                    errors.seek(0)
                    print(errors.read().decode(errors="replace"), file=sys.stderr)
                    raise CannotInstall(NO_TORCH)
    must(failed, *command, "-r", lock_of(kind))


def install_bubblewrap() -> None:
    """Install bubblewrap, which isolates skills, if apt allows it. Otherwise say so, and continue."""
    if shutil.which("bwrap"):
        return
    if shutil.which("apt-get") and os.geteuid() == 0:
        command = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "bubblewrap")
        if run(*command) or (run("apt-get", "update", "--quiet") and run(*command)):
            return
    print(
        "bubblewrap, which isolates skills, is not installed. Install it with apt or dnf, or without root"
        " with `conda install -c conda-forge bubblewrap`; see docs/sandbox.md",
        flush=True,
    )


def install(kind: str | None, venv: Path) -> None:
    """Bring a virtual environment to the state of the lock and pyproject.toml.

    Usually there is nothing to do.

    Args:
        kind: `cpu` or `gpu`; without it the installed kind stays, or `cpu`.

    Raises `CannotInstall`: packages cannot be installed.
    """
    stamp_file = venv / "installed.json"
    stamp = json.loads(stamp_file.read_text(encoding="utf-8")) if stamp_file.is_file() else {}
    kind = kind or stamp.get("kind", "cpu")
    wanted = {
        "kind": kind,
        "lock": hashlib.sha256(lock_of(kind).read_bytes()).hexdigest(),
        "project": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
        "place": str(venv),  # a virtual environment does not survive a move
    }
    install_bubblewrap()
    if stamp == wanted:
        return
    stamp_file.unlink(missing_ok=True)
    if {**stamp, "project": wanted["project"]} != wanted:
        install_packages(kind, venv)
    pip = (venv / "bin" / "python", "-m", "pip", "install")
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    # Editable: the checkout is the code that runs.
    must("the project itself cannot be installed", *pip, *offline, "-e", ".")
    unfinished = stamp_file.with_suffix(".tmp")
    unfinished.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
    unfinished.rename(stamp_file)
    print(f"{venv} is ready ({kind})", flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build .venv from a full lock, if needed.")
    parser.add_argument(
        "kind", nargs="?", choices=("cpu", "gpu"), help="which lock (default: the installed one, or cpu)"
    )
    parser.add_argument("--venv", type=Path, default=VENV, help="folder (default: .venv)")
    os.environ.pop("PYTHONPATH", None)
    given = parser.parse_args()
    try:
        install(given.kind, given.venv.absolute())
    except CannotInstall as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: set-up failed: {error}")
    except KeyboardInterrupt:
        sys.exit("\nset-up was interrupted: run the same command again")


if __name__ == "__main__":
    main()
