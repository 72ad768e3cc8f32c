"""Runs commands of ours one by one, each in a process that is forked with bounds on memory and CPU time.

A line of JSON on standard input, `{"cwd": ..., "command": [...]}`, is answered by a line of `Ended`. What
commands import is loaded once, so that a bound counts what a command itself takes.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO

MEMORY = 300 * 2**20
"""Bytes that a command may allocate beyond what is loaded before it."""

CPU_S = 60
"""CPU seconds of one command. On a busy machine the same work takes more of them."""


IMPORTED = (
    *("anyio", "atif", "inspect_ai.log", "networkx", "pandas", "pyarrow.dataset"),
    *("lxml.etree", "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg", "pyarrow.parquet"),
    *("pygments.formatters.html", "pygments.lexers.python", "radon.complexity", "rich.markdown"),
    *("rich.syntax", "scipy.special", "tokenizers", "transformers.models.auto.tokenization_auto"),
    *("envs.babyai", "speedrunner.methods.speedrunner.speedrunner_method", "speedrunner.pages.templates"),
)
"""What commands import where they need it."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status (negative: the signal) and what it printed."""

    status: int
    out: str
    err: str


class Commands:
    """Context manager: the process that runs commands."""

    def __enter__(self) -> Commands:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, cwd: Path, *command: str) -> Ended:
        """Run one to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"cwd": str(cwd), "command": command}) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


def _load() -> None:
    """Import the modules of all commands, and what they import where they need it."""
    from speedrunner.cli.commands import COMMANDS
    from speedrunner.cli.lazy_group import load
    from speedrunner.cli.reference import leaves

    for _, command in leaves((each for commands in COMMANDS.values() for each in commands), ""):
        load(command)
    import speedrunner.cli.error_messages
    import speedrunner.pages.inline
    import speedrunner.results.run_result  # noqa: F401
    from speedrunner.config.compose import compose

    for name in IMPORTED:
        with suppress(ImportError):
            __import__(name)
    compose([])  # reads the configuration's files, once
    gc.collect()
    gc.freeze()  # else each command's process would look at all of this, and so copy it


def _allocated() -> int:
    """Bytes of writable memory of this process, as `RLIMIT_DATA` counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


def _carry_out(cwd: str, command: list[str], out: IO[str], err: IO[str]) -> int:
    """Be the command's process. Returns its exit status."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the jobs are for this program
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    os.chdir(cwd)
    most = _allocated() + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    from speedrunner.cli.app import main

    status = 0
    try:
        main(command)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 70
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _serve() -> None:
    _load()
    for line in sys.stdin:
        job = json.loads(line)
        with TemporaryFile("w+", errors="replace") as out, TemporaryFile("w+", errors="replace") as err:
            pid = os.fork()
            if not pid:
                status = 71
                try:
                    status = _carry_out(job["cwd"], job["command"], out, err)
                finally:
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            out.seek(0)
            err.seek(0)
            print(json.dumps({"status": status, "out": out.read(), "err": err.read()}), flush=True)


if __name__ == "__main__":
    _serve()
