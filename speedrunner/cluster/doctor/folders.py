"""Folders: of the runs, of caches and of sockets."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from serving.engine.caches import USUAL, cache_settings
from serving.engine.server import VllmServer
from serving.errors import ServerFailed
from serving.hub import cache_folder
from serving.weights import model_path
from speedrunner.cluster.doctor.mounts import Mount, mount_of, nearest
from speedrunner.cluster.subject import Subject
from speedrunner.findings import Finding, failure, ok, warning

RUN_GB = 0.5
"""Room for one run of the paper's size; an estimate: most are far smaller, Crafter's are the largest."""

RUN_FILES = 500
"""Most files that a run makes."""

SCRATCH_GB = 5.0
"""Room for what the engine compiles and for sockets: an estimate."""

WRITTEN = 2**20
"""Bytes that are written on trial: a full quota refuses them, and an empty file may still be made."""

COMPILED = {**USUAL, "NUMBA_CACHE_DIR": tempfile.gettempdir()}
"""Variables that name folders for what is compiled, with the folders outside of jobs."""


def run_folders(subject: Subject) -> Iterator[Finding]:
    """Check that runs can be written: room, files and type of file system."""
    for folder in subject.folders:
        name, base = f"folder {folder}", nearest(folder)
        runs = sum(Path(each.run.dir).absolute().parent == folder for each in subject.configs)
        elsewhere = "another folder: run.dir=..., or --dir of a list"
        try:
            _try_to_write(base)
        except OSError as error:
            yield failure(name, f"cannot be written ({error.strerror})", elsewhere)
            continue
        mount = mount_of(base)
        free_gb, free_files = shutil.disk_usage(base).free / 1e9, os.statvfs(base).f_favail
        text = f"{mount.type} at {mount.place}, {free_gb:.1f} GB free"
        if free_gb < RUN_GB * runs:
            yield warning(name, f"{text}, and {runs} runs may take {RUN_GB * runs:.1f}", elsewhere)
        elif 0 < free_files < RUN_FILES * runs:  # some file systems do not count them
            yield failure(
                name, f"{free_files} more files fit, and {runs} runs may make {RUN_FILES} each", elsewhere
            )
        elif mount.is_memory:
            yield warning(name, f"{text}: what is in memory ends with the job or the machine", elsewhere)
        else:
            yield ok(name, text)


def scratch(subject: Subject) -> Iterator[Finding]:
    """Whether the temporary folder is this machine's own, with room, and short enough for sockets."""
    name, folder = "scratch", Path(tempfile.gettempdir())
    own = os.environ.get("SLURM_TMPDIR") or "/tmp"
    remedy = f"export TMPDIR={own}"
    if wanted := os.environ.get("TMPDIR"):
        try:
            _try_to_write(Path(wanted))
        except OSError as error:
            told = f"TMPDIR={wanted} cannot be used ({error.strerror}), and {folder} is used instead"
            yield warning(name, told, f"make it a folder that you can write, or {remedy}")
    try:
        _try_to_write(folder)
        for card, _ in subject.served[:1]:
            taken = VllmServer(card, model_path(card), Path("unused")).folder.parent
            if taken != folder:
                told = f"{folder} is too long a path for sockets, which go to {taken}"
                yield warning(name, told, "export TMPDIR= a shorter one")
    except (OSError, ServerFailed) as error:
        yield failure(name, f"{folder}: {getattr(error, 'strerror', None) or error}", remedy)
        return
    mount, free_gb = mount_of(folder), shutil.disk_usage(folder).free / 1e9
    text = f"{folder} ({mount.type}), {free_gb:.1f} GB free"
    if mount.is_shared:
        yield warning(name, f"{text}: sockets and caches do badly on what machines share", remedy)
    elif free_gb < SCRATCH_GB:
        yield warning(
            name, f"{text}; the engine may compile up to {SCRATCH_GB:.0f}", "clear some, or another TMPDIR"
        )
    elif mount.is_memory:
        yield ok(name, f"{text}; it counts against the job's memory")
    else:
        yield ok(name, text)


def caches(subject: Subject) -> Iterator[Finding]:
    """Whether what is compiled stays on this machine; weights may be anywhere."""
    wrong = dict(_shared_caches())
    for variable, (path, mount) in wrong.items():
        own = "" if os.environ.get(variable) else " (jobs use the node's disk)"
        line = f'export {variable}="$(mktemp -d)"'  # a name that nobody else can have taken before
        yield warning(
            "caches",
            f"{variable} is {path}, on {mount.type}, which machines share{own}",
            line,
        )
    if not wrong:
        yield ok("caches", f"{', '.join(COMPILED)}: on this machine")
    yield _weights(subject)


def _weights(subject: Subject) -> Finding:
    """Whether there is, or can be, a folder for what is fetched from the hub; one to read alone will do."""
    name, home, remedy = "weights", cache_folder(), "export HF_HOME= a folder of yours, in the job as well"
    if any(card.id for card in subject.cards):
        try:
            os.scandir(home).close()
        except FileNotFoundError:
            try:
                _try_to_write(nearest(home))
            except OSError as error:
                return warning(name, f"{home} cannot be made ({error.strerror})", remedy)
        except OSError as error:
            return failure(name, f"{home} cannot be looked at ({error.strerror})", remedy)
    return ok(name, f"of the hub are kept in {home} ({mount_of(home).type})")


def _shared_caches() -> Iterator[tuple[str, tuple[Path, Mount]]]:
    derived = cache_settings(os.environ, Path(tempfile.gettempdir()))
    for variable, usual in COMPILED.items():
        path = Path(os.environ.get(variable) or derived.get(variable) or usual).expanduser()
        if (mount := mount_of(path)).is_shared:
            yield variable, (path, mount)


def _try_to_write(folder: Path) -> None:
    """Write a file and remove it. Raises `OSError`."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".speedrunner-doctor-") as file:
        file.write(bytes(WRITTEN))
        file.flush()
        os.fsync(file.fileno())
