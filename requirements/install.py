"""Builds `.venv` from a full lock, unless the existing one was built from it.

    python3 requirements/install.py [cpu|gpu]

`make` calls it, with a Python that is new enough. Without an argument, the kind of the existing `.venv`
stays, or `cpu` is built. Only the standard library is used, since this runs before anything is installed. A
virtual environment is complete if it has the stamp, which is written last. An interrupted set-up has no stamp
and is started over, from uv's cache.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOG = ROOT / ".cache" / "install.log"
PYPI = "https://pypi.org/simple"
PYTORCH_CPU = "https://download.pytorch.org/whl/cpu"
SILENT_S = 15.0
"""Maximum seconds without output on a standard output that is not a terminal."""

NEEDED_GB = {"cpu": 5, "gpu": 16}


class CannotInstall(Exception):
    """Packages cannot be installed here. The message is one line for users."""


class NotPossibleHere(CannotInstall):
    """The disk has too little room, or the package index does not have or show a package."""


UNREACHABLE = (
    r"(?i)no solution|no matching|not find|not found|fetch|connect|resolve|network|time.?out|40[34]|50\d"
)
"""Output of uv and pip for a package that is not available. A wrong hash or a failed build does not match."""


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


def pip_sources(kind: str, settings: dict[str, list[str]]) -> list[str]:
    """Return the package sources of pip's configuration as options for uv, which does not read it.

    Each package comes from one index, the configured one. Other indexes with a package of the same name are
    not used (`extra-index-url`). Folders of wheels (`find-links`) are used only for the CPU build, since the
    usual index lacks its torch.
    """
    options = {name: f"--{name}" for name in ("index-url", "find-links", "cert")}
    options["trusted-host"] = "--allow-insecure-host"
    if kind != "cpu":
        del options["find-links"]  # a local wheel of torch's CPU build would satisfy the pin of the GPU build
    return [
        word
        for name, option in options.items()
        for value in settings.get(name, [])
        for word in (option, value)
    ]


def locked(kind: str, package: str) -> Path:
    """Write a file with one package's lines of a lock, including its hashes. Return its path."""
    lines = lock_of(kind).read_text("utf-8")
    (block,) = re.findall(rf"^{package}==\S+(?: \\\n    --hash=\S+)+", lines, re.MULTILINE)
    file = LOG.parent / f"{package}.lock"
    file.write_text(block + "\n", encoding="utf-8")
    return file


class InstalledCount:
    """Shows how many packages an environment has: a live line on a terminal, otherwise one now and then.

    Args:
        venv: the environment; packages that it has already are not counted.
        total: number of packages to install.
    """

    def __init__(self, venv: Path, total: int) -> None:
        self._venv, self._total = venv, total
        self._before = self._packages()
        self._began = self._shown = time.monotonic()
        self._width = 0

    def show(self, line: str = "") -> None:
        """Show the count and what the installer is doing now."""
        is_terminal = sys.stdout.isatty()
        if not is_terminal and time.monotonic() - self._shown < SILENT_S:
            return
        self._shown = time.monotonic()
        if self._count() == self._total:  # uv compiles at the end, and prints nothing meanwhile
            line = "compiling their modules"
        text = self.describe() + (f": {line}" if line else "")
        if is_terminal:
            text = text[: shutil.get_terminal_size().columns - 1]
            print(f"\r{text:{self._width}}", end="", flush=True)
            self._width = len(text)
        else:
            print(text, flush=True)

    def end(self) -> None:
        """Show the final count in a line of its own."""
        end_of_line = "\r" if sys.stdout.isatty() else ""
        print(f"{end_of_line}{self.describe():{self._width}}", flush=True)

    def describe(self) -> str:
        """Return the count and the elapsed time: `installed 31 of 242 packages, 45 s`."""
        seconds = time.monotonic() - self._began
        return f"installed {self._count()} of {self._total} packages, {seconds:.0f} s"

    def _count(self) -> int:
        return min(len(self._packages() - self._before), self._total)

    def _packages(self) -> set[str]:
        return {each.name for each in self._venv.glob("lib/python3*/site-packages/*.dist-info")}


def attempt(*command: str | Path, show: Callable[[str], None] = lambda line: None) -> str | None:
    """Run a command with its output in the log. Returns None, or why it failed, in one line.

    Args:
        show: called about twice a second with the last line of the output.
    """
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(map(str, command))}\n")
        log.flush()
        start = log.tell()
        with subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT) as process:
            try:
                is_running = True
                while is_running:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.5)
                    is_running = process.poll() is None
                    show(next(iter(_output(start).splitlines()[-1:]), "").strip())
            except BaseException:
                process.kill()
                raise
    output = _output(start)
    if process.returncode == 0:
        return None
    if "No space left on device" in output:
        raise NotPossibleHere("the disk is full: free some space and run this command again")
    lines = [line.strip(" ×╰─▶│├") for line in output.splitlines() if line.strip()]
    telling = next((i for i, line in enumerate(lines) if re.match(r"(?i)error|no solution", line)), -1)
    reason = re.sub(r"(?i)^error:\s*", "", " ".join(lines[telling:])).partition(" ERROR: ")[0]
    return without_passwords(reason)[:300] or f"exit status {process.returncode}"


def _output(start: int) -> str:
    """Return the log from a byte on."""
    with LOG.open("rb") as log:
        log.seek(start)
        return log.read().decode(errors="replace")


def without_passwords(text: str) -> str:
    """Return text without the user names and passwords of its addresses."""
    return re.sub(r"(?<=://)[^/\s@]+@", "", text)


def must(or_else: str, *command: str | Path) -> None:
    """Run a command. If it fails, exit with the consequence and the reason."""
    if failed := attempt(*command):
        sys.exit(f"error: {or_else}: {failed}")


def check_machine(kind: str) -> None:
    """Report problems early that would otherwise cause obscure failures: venv is missing, or the disk is
    full."""
    if not (find_spec("venv") and find_spec("ensurepip")):
        package = "python{}.{}-venv".format(*sys.version_info)
        sys.exit(f"error: {sys.executable} lacks venv or ensurepip (on Debian: apt install {package})")
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < NEEDED_GB[kind]:
        raise NotPossibleHere(
            f"set-up needs about {NEEDED_GB[kind]} GB in {ROOT}, but {free:.1f} GB are free"
        )


def failure(text: str, why: str) -> CannotInstall:
    """Return the exception for packages that were not installed."""
    is_missing = re.search(UNREACHABLE, why) and not re.search(r"(?i)hash", why)
    return (NotPossibleHere if is_missing else CannotInstall)(text)


def install_packages(kind: str, venv: Path) -> None:
    """Build the environment from scratch and install the lock into it, with uv or otherwise with pip."""
    lock = lock_of(kind)
    count = len(re.findall(r"^\S+==\S+", lock.read_text("utf-8"), re.MULTILINE))
    print(f"installing {count} packages into {venv} (details: {LOG})", flush=True)
    must(f"cannot make {venv}", sys.executable, "-m", "venv", "--clear", venv)
    progress = InstalledCount(venv, count)
    python = venv / "bin" / "python"
    # Files that differ from their hashes in the lock are rejected, wherever they come from.
    checked = ("--no-deps", "--require-hashes")
    command: list[str | Path] = [python, "-m", "pip", "install", *checked]
    settings, sources = pip_settings(), list[str]()
    if attempt(*command, "-r", locked(kind, "uv")) is None:
        # Compiled now, as pip does it: if Python cannot write bytecode later, every start would compile
        # again.
        uv = venv / "bin" / "uv"
        command = [uv, "pip", "install", "--python", python, *checked, "--compile-bytecode"]
        command += ["--build-constraints", lock]  # for the few packages that come as source
        sources = pip_sources(kind, settings)
    else:
        print("uv is not available: installing with pip, which is slower", flush=True)
    if kind == "cpu":
        # The CPU build first, since the default package index only has the CUDA build of the same version.
        install_torch(command, sources, settings, progress.show)
    failed = attempt(*command, *sources, "-r", lock, show=progress.show)
    progress.end()
    if failed:
        raise failure(f"a package cannot be installed: {failed}", failed)


def install_torch(
    command: Sequence[str | Path],
    sources: Sequence[str],
    settings: dict[str, list[str]],
    show: Callable[[str], None] = lambda line: None,
) -> None:
    """Install PyTorch's CPU build from the configured sources, or else from PyTorch's own index.

    Args:
        command: the installer's command, without packages.
        sources: its options for the configured sources.
        settings: pip's configuration.

    Raises:
        CannotInstall: no source has it; the message names all that were tried.
    """
    torch = locked("cpu", "torch")
    configured = attempt(*command, *sources, "-r", torch, show=show)
    if configured is None:
        return
    own = attempt(*command, "--index-url", PYTORCH_CPU, "-r", torch, show=show)
    if own is None:
        return
    tried = [*settings.get("index-url", [PYPI]), *settings.get("find-links", [])]
    package = torch.read_text("utf-8").split()[0]
    raise failure(
        f"{package} cannot be installed. Tried {without_passwords(' and '.join(tried))} ({configured}), then"
        f" {PYTORCH_CPU} ({own}). Download the wheel for Python {sys.version_info[0]}.{sys.version_info[1]}"
        f" from {PYTORCH_CPU} on another machine and run `PIP_FIND_LINKS=FOLDER make venv`, or use a mirror:"
        " `PIP_FIND_LINKS=https://MIRROR/whl/cpu/torch/ make venv`",
        f"{configured} {own}",
    )


def install_bubblewrap() -> None:
    """Install bubblewrap, the best isolation for skills, if this machine allows it. Otherwise say what to do,
    and continue."""
    if sys.platform != "linux" or shutil.which("bwrap"):
        return
    failed: str | None = "only root can do that here"
    if shutil.which("apt-get") and os.geteuid() == 0:
        print("installing bubblewrap, which isolates skills", flush=True)
        command = ("apt-get", "install", "--yes", "--no-install-recommends", "bubblewrap")
        failed = attempt(*command)
        if failed and attempt("apt-get", "update") is None:
            failed = attempt(*command)
    if failed:
        print(
            f"bubblewrap, which isolates skills, is not installed ({failed}). SpeedRunner uses user"
            " namespaces instead if this machine allows them. Otherwise ask for bubblewrap (Debian,"
            " Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap), or see docs/sandbox.md",
            flush=True,
        )


def install(kind: str | None, venv: Path = VENV) -> None:
    """Bring a virtual environment to the state of the lock and pyproject.toml.

    Usually there is nothing to do.

    Args:
        kind: `cpu` or `gpu`; without it the installed kind stays, or `cpu`.

    Raises:
        CannotInstall: packages cannot be installed; `NotPossibleHere` for lack of disk space or of a package.
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
    LOG.parent.mkdir(exist_ok=True)
    if stamp != wanted:
        LOG.unlink(missing_ok=True)
    install_bubblewrap()
    if stamp == wanted:
        return
    stamp_file.unlink(missing_ok=True)
    if {**stamp, "project": wanted["project"]} != wanted:
        check_machine(kind)
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
        "kind", nargs="?", choices=sorted(NEEDED_GB), help="which lock (default: the installed one, or cpu)"
    )
    os.environ.pop("PYTHONPATH", None)
    kind = parser.parse_args().kind
    try:
        install(kind)
    except CannotInstall as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: set-up failed: {error}")
    except KeyboardInterrupt:
        sys.exit("\nset-up was interrupted: run the same command again")


if __name__ == "__main__":
    main()
