"""A vLLM server that we own: started from a model config, awaited, and stopped on every way out.

Its folders are a private one, and those for what its libraries compile. Several of them lock their files,
which is slow or fails on NFS, and load code from there, so no one else may be able to write there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from serving.engine import guard
from serving.engine.api_server import API_SERVER
from serving.engine.endpoint import Endpoint
from serving.engine.gpus import Gpu, device_settings
from serving.engine.scheduling import scheduler_options
from serving.errors import ServerFailed
from serving.model_config import ModelConfig
from serving.options import START_TIMEOUT_S
from serving.weights import adapter_arguments, find_folder, model_path

LOOPBACK = {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
WORKER = "serving.engine.worker.Worker"
"""Import path of the worker class that keeps outsiders away from the server; see `serving.engine.worker`."""

Progress = Callable[[float, str], None]
"""Called about once a second during a start, with the seconds so far and the newest line of the log."""

PROGRAMS = str(Path(sys.executable).parent)
"""Folder of the interpreter's own programs, including ninja."""

WITHOUT_NVCC = {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0"}
"""Both would run nvcc at their first use, and the server would end where that fails. Kernels of vLLM do the
same work."""

COMPUTE_NICENESS = 10
"""Niceness of a model's processes on a CPU. They never rest, so the client would wait long for a core to send
them more work."""


def server_path(environment: Mapping[str, str]) -> str:
    """Return a server's PATH: the interpreter's own programs come first."""
    return os.pathsep.join((PROGRAMS, environment.get("PATH", os.defpath)))


class VllmServer:
    """One server process tree for one model config, on a Unix socket in a folder that only we can enter.

    Its owner stops it. It also ends, within seconds, when this process ends in any way, including SIGKILL
    (see `serving.engine.guard`). It is not bound to an event loop: one may start it and another stop it.

    Attributes:
        folder: its files on disk, removed with it; only this user can enter it.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        log: Path,
        *,
        gpus: Sequence[Gpu] = (),
        start_timeout_s: float = START_TIMEOUT_S,
        logs_steps: bool = False,
    ) -> None:
        """Describe a server; nothing is started yet.

        Args:
            log: its folder is created if it is missing.
            gpus: the GPUs for the server; if empty, every GPU that this process sees.
            start_timeout_s: longest wait for a healthy server, in seconds.
            logs_steps: whether it logs its steps (`serving.engine.step_log`) in its folder.

        Raises `ServerFailed`: no temporary folder has a path short enough for a Unix socket.
        """
        self.model_config = model_config
        self.log = log
        self._gpus = gpus
        self._start_timeout_s = start_timeout_s
        self.folder = private_folder()
        self.step_log = self.folder / "steps" if logs_steps else None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.endpoint = Endpoint.on_socket(self.folder / "http")

    @property
    def command(self) -> list[str]:
        """The exact command, without the environment."""
        return [*API_SERVER, *self.arguments]

    @property
    def arguments(self) -> list[str]:
        """The arguments of vLLM's API server."""
        model_config = self.model_config
        arguments = ["--model", model_path(model_config)]
        if model_config.revision:
            arguments += ["--revision", model_config.revision, "--tokenizer-revision", model_config.revision]
        arguments += adapter_arguments(model_config)
        arguments += ["--max-model-len", str(model_config.context), "--dtype", model_config.dtype]
        arguments += ["--worker-cls", WORKER]
        arguments += ["--uds", str(self.endpoint.socket)]
        arguments += scheduler_options(model_config, self.step_log)[0]
        return arguments + model_config.arguments()

    @property
    def shell_line(self) -> str:
        """The command with its environment, to be pasted into a shell."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self._environment().items()]
        return " ".join([f'PATH={shlex.quote(PROGRAMS)}:"$PATH"', *words, shlex.join(self.command)])

    @property
    def alive(self) -> bool:
        """Whether the server's process runs (not whether it answers)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The root of the server's process tree (its guard) while it runs."""
        return self._process.pid if self.alive and self._process else None

    async def start(self, progress: Progress | None = None) -> None:
        """Start the server, once, and wait until it reports that it is healthy. On failure nothing of it
        remains.

        Raises:
            ServerFailed: it ended, or it took too long. The message has the log's most informative lines, the
                command and the log's path.
        """
        assert self._process is None
        try:
            try:
                self._spawn()
            except OSError as error:
                raise ServerFailed(
                    f"the server of model {self.model_config.name!r} cannot start: {error}"
                ) from error
            await self._until_healthy(progress or (lambda seconds, line: None))
        except BaseException:
            self.kill()
            raise

    async def stop(self, grace_s: float = 5.0) -> None:
        """End the server and every process it started. A second call does nothing.

        Args:
            grace_s: seconds from SIGINT to SIGKILL.
        """
        try:
            if self._process is not None:
                self._process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(self._process.wait, grace_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the server and every process it started, at once."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            if process.returncode is None or process.returncode < 0:
                # The guard is stuck, or was killed. Its processes still have its group id.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def failure(self) -> str:
        """Return a message for users about a dead server: the log's most informative lines, the command, the
        log."""
        status = self._process.poll() if self._process else None
        if status is None:
            return self._report("no longer answers")
        ended = "was killed by SIGKILL" if status in (-9, 137) else f"ended with status {status}"
        return self._report(ended)

    def _environment(self) -> dict[str, str]:
        """Return the environment variables of the server's processes that differ from ours, except PATH. The
        model config's own are last."""
        without_nvcc = WITHOUT_NVCC if self.model_config.gpus else {}
        id_, revision = self.model_config.id, self.model_config.revision
        is_here = id_ is not None and find_folder(id_, revision) is not None
        own = {name: str(value) for name, value in self.model_config.server.env.items()}
        return {
            "VLLM_RPC_BASE_PATH": str(self.folder),  # for vLLM's own sockets, which it leaves behind
            # The server must not listen to other machines, whatever the machine's name resolves to.
            **LOOPBACK,
            "TMPDIR": str(self.folder),  # other files that it leaves behind are removed with the folder
            **cache_settings({**os.environ, **own}),
            **device_settings(self._gpus),
            "PYTHONUNBUFFERED": "1",
            "VLLM_LOGGING_COLOR": "0",
            **scheduler_options(self.model_config, self.step_log)[1],
            # Otherwise it asks the hub, with a long wait on a node without a network.
            **({"HF_HUB_OFFLINE": "1"} if is_here else {}),
            **{name: value for name, value in without_nvcc.items() if not os.environ.get(name)},
            **own,
        }

    def _spawn(self) -> None:
        environment = {**os.environ, "PATH": server_path(os.environ), **self._environment()}
        # Otherwise each of its processes would compile thousands of modules again, at every start.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment.pop("VLLM_API_KEY", None)
        # The log and its folder are created for their owner alone; a link in its place is an error.
        self.log.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(self.log, flags, 0o600), "ab") as log:
            self._log_start = log.tell()
            self.folder.mkdir(mode=0o700)
            nice = [] if self.model_config.gpus else ["nice", "-n", str(COMPUTE_NICENESS)]
            owned = [sys.executable, "-P", guard.__file__, str(os.getpid()), str(self.folder)]
            self._process = subprocess.Popen(
                [*owned, *nice, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # this process handles Ctrl-C on the terminal, not the server
            )

    async def _until_healthy(self, progress: Progress) -> None:
        began = shown_at = time.monotonic()
        newest, read = "importing", self._log_start
        while True:
            is_healthy = await self.endpoint.health() == 200
            now = time.monotonic()
            lines, read = read_new_lines(self.log, read)
            newest = [newest, *lines][-1][:_LONGEST]
            if not self.alive:  # a healthy answer then came from another process
                raise ServerFailed(self.failure())
            if is_healthy:
                return
            if now - began > self._start_timeout_s:
                limit = f"{self._start_timeout_s:g} s (serving.start_timeout_s)"
                raise ServerFailed(self._report(f"was not healthy after {limit}"))
            if now - shown_at >= 1.0:
                shown_at = now
                progress(now - began, newest)
            await asyncio.sleep(0.2)

    def _report(self, what: str) -> str:
        cause = " | ".join(find_telling_lines(self.log, self._log_start)) or "its log is empty"
        return (
            f"the server of model {self.model_config.name!r} {what}: {cause}\n"
            f"  log: {self.log}\n"
            f"  command: {self.shell_line}"
        )


_PREFIX = re.compile(
    r"^(\([\w-]+( pid=\d+)?\)\s*)?"  # (EngineCore pid=123)
    r"((DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+\d\d-\d\d \d\d:\d\d:\d\d\s+)?"
    r"(\[[^\]]+:\d+\]\s?)?"  # [core.py:1415]
)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Failed)(:|$)")
_OTHER = re.compile(r"\berror: |Segmentation fault|Bus error|Illegal instruction|[Oo]ut of memory|\bKilled\b")
_CONSEQUENCE = re.compile(r"root cause|EngineDeadError|EngineCore encountered an issue")
_MOST, _LONGEST = 3, 500
"""Maximum number of informative lines, and of characters in each."""

_TAIL = 1_000_000
"""Bytes at the end of a log that are searched for these lines."""


def read_new_lines(log: Path, start: int) -> tuple[list[str], int]:
    """Return the complete lines from byte `start` on, and the byte at which the next call starts.

    Each state of a progress bar is a line. The lines have no prefixes and no colours, and none is empty.
    """
    text = _read(log, start)
    end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
    return _clean_lines(text[:end]), start + end


def find_telling_lines(log: Path, start: int = 0) -> list[str]:
    """Return the lines that name the cause of a failure, first cause first: the ends of tracebacks and
    similar lines. If there are none, return the last lines.

    Args:
        start: byte of the file at which to start.
    """
    lines = _clean_lines(_read(log, start, _TAIL))
    matching = [line for line in lines if _EXCEPTION.match(line) or _OTHER.search(line)]
    causes = [line for line in matching if not _CONSEQUENCE.search(line)] or matching or lines[-_MOST:]
    return [line[:_LONGEST] for line in dict.fromkeys(causes)][:_MOST]


def _read(log: Path, start: int, most: int | None = None) -> bytes:
    """Return the bytes from `start` on; at most the last `most` of them."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(start if most is None else max(start, size - most))
            return file.read()
    except FileNotFoundError:
        return b""


def _clean_lines(text: bytes) -> list[str]:
    """Return the non-empty lines without prefixes and colours."""
    lines = text.decode("utf-8", errors="replace").splitlines()
    cleaned = (_PREFIX.sub("", _COLOR.sub("", line), count=1).rstrip() for line in lines)
    return [line for line in cleaned if line]


CACHE_VARIABLE = "SPEEDRUNNER_CACHE"
"""Environment variable: the folder for all caches. Only this user may be able to write there."""

USUAL_CACHES = {
    "VLLM_CACHE_ROOT": "~/.cache/vllm",  # also for the caches of DeepGEMM and torch.compile
    "TRITON_CACHE_DIR": "~/.triton/cache",
    "TORCHINDUCTOR_CACHE_DIR": "~/.cache/torchinductor",
    "FLASHINFER_WORKSPACE_BASE": "~",  # FlashInfer adds .cache/flashinfer
    "CUTE_DSL_CACHE_DIR": "~/.cache/cute_dsl",
    "QUACK_CACHE_DIR": "~/.cache/quack",
    "CUDA_CACHE_PATH": "~/.nv/ComputeCache",
}
"""Variables that name the caches, with the folders that are used outside of jobs."""

TEMPORARY_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "QUACK_CACHE_DIR")
"""Caches that a library would put into a temporary folder, where another user could have placed code."""


def cache_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the caches that the environment does not set: all in the folder that
    SPEEDRUNNER_CACHE names, as in our Slurm jobs; without it, those of `TEMPORARY_CACHES` in the user's home.

    Raises `ServerFailed`: that folder cannot be created, or others could write there.
    """
    if chosen := environment.get(CACHE_VARIABLE):
        base = Path(chosen).expanduser().absolute()
        advice = f"choose another folder ({CACHE_VARIABLE})"
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = base.stat()
        except OSError as error:
            raise ServerFailed(f"no folder for caches at {base}: {error.strerror}; {advice}") from error
        if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ServerFailed(
                f"other users can write to {base}, and servers load code from it: run `chmod go-w {base}`, or"
                f" {advice}"
            )
        folders = {variable: base / variable.partition("_")[0].lower() for variable in USUAL_CACHES}
    else:
        folders = {variable: Path(USUAL_CACHES[variable]).expanduser() for variable in TEMPORARY_CACHES}
    return {variable: str(folder) for variable, folder in folders.items() if not environment.get(variable)}


LONGEST_FOLDER = 68
"""Bytes: a socket's path may have 107, and vLLM adds 37 for the names of its sockets in our folder."""


def private_folder() -> Path:
    """Return a new path, not yet a folder, short enough for the sockets in it.

    Raises `ServerFailed` if there is no place for one.
    """
    name = f"speedrunner-{secrets.token_hex(4)}"
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        folder = Path(parent) / name
        if len(os.fsencode(folder)) <= LONGEST_FOLDER and os.access(parent, os.W_OK):
            return folder
    raise ServerFailed(
        f"no folder is usable for sockets: {tempfile.gettempdir()} is too long a path, and /tmp is closed"
    )
