"""Folders of runs, scratch and caches, and the file systems that they are on."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from serving.engine.caches import USUAL, cache_settings
from serving.hub import cache_folder
from speedrunner.config.findings import Finding, failure, ok, warning
from speedrunner.experiments.cluster.cluster_subject import Subject
from speedrunner.store.files import StorageError
from speedrunner.store.stored_run import RunFiles

MOUNTS = Path("/proc/self/mountinfo")

NETWORK = re.compile(
    r"nfs|lustre|gpfs|beegfs|ceph|cifs|smb|afs|panfs|pvfs|orangefs|weka|glusterfs|fuse\.sshfs|9p|virtiofs"
)
"""Prefixes of the types of file systems that machines share."""

RUN_GB, RUN_FILES = 0.5, 500
"""Disk space and maximum number of files of one run of the paper's size: an estimate; Crafter's are the
largest."""

SCRATCH_GB = 5.0
"""Disk space for the engine's compiled code and for sockets: an estimate."""

WRITTEN = 2**20
"""Bytes of a trial write: a full quota refuses them, although it may still allow an empty file."""

COMPILED = {**USUAL, "NUMBA_CACHE_DIR": tempfile.gettempdir()}
"""Variables that name folders for compiled code, with the folders outside of jobs."""


class Mount(msgspec.Struct, frozen=True):
    """A mounted file system: its folder, and the kernel's name of its type."""

    place: Path
    type: str

    @property
    def is_shared(self) -> bool:
        """Whether other machines serve or share it."""
        return NETWORK.match(self.type) is not None

    @property
    def is_memory(self) -> bool:
        """Whether its files are lost when the machine, and often the job, ends."""
        return self.type in ("tmpfs", "ramfs")


def run_folders(subject: Subject) -> Iterator[Finding]:
    """Check that runs can be written: earlier records, disk space, number of files, type of file system."""
    for folder in subject.folders:
        name, base = f"folder {folder}", _nearest(folder)
        paths = [Path(each.run.dir) for each in subject.configs]
        paths = [path for path in paths if path.absolute().parent == folder]
        runs = len(paths)
        elsewhere = "choose another folder with run.dir=..., or --dir for a list"
        if problem := _write_problem(base):
            yield failure(name, f"cannot be written ({problem})", elsewhere)
            continue
        for path in filter(Path.exists, paths):
            try:
                RunFiles(path).check()
            except (StorageError, OSError) as error:
                yield failure(f"run {path}", str(error), elsewhere)
        mount, free_gb, free_files = mount_of(base), _free_gb(base), os.statvfs(base).f_favail
        text = f"{mount.type} at {mount.place}, {free_gb:.1f} GB free"
        if 0 < free_files < RUN_FILES * runs:  # some file systems do not count them
            few = f"{free_files} more files fit, but {runs} runs may create {RUN_FILES} each"
            yield failure(name, few, elsewhere)
        elif free_gb < RUN_GB * runs:
            yield warning(name, f"{text}, but {runs} runs may take {RUN_GB * runs:.1f}", elsewhere)
        elif mount.is_memory:
            yield warning(
                name, f"{text}: files in memory are lost at the end of the job or a reboot", elsewhere
            )
        else:
            yield ok(name, text)


def scratch(subject: Subject) -> Iterator[Finding]:
    """Check that the temporary folder can be written, has enough space and is local to this machine."""
    name, folder = "scratch", Path(tempfile.gettempdir())
    remedy = f"export TMPDIR={os.environ.get('SLURM_TMPDIR') or '/tmp'}"
    if problem := _write_problem(folder):
        yield failure(name, f"{folder}: {problem}", remedy)
        return
    mount, free_gb = mount_of(folder), _free_gb(folder)
    text = f"{folder} ({mount.type}), {free_gb:.1f} GB free"
    if mount.is_shared:
        yield warning(name, f"{text}: sockets and caches work badly on a shared file system", remedy)
    elif free_gb < SCRATCH_GB:
        needed = f"{text}; the engine may compile up to {SCRATCH_GB:.0f}"
        yield warning(name, needed, "delete some files, or set another TMPDIR")
    else:
        yield ok(name, f"{text}; it counts against the job's memory" if mount.is_memory else text)


def caches(subject: Subject) -> Iterator[Finding]:
    """Check that compiled code stays on this machine, and that weights of the hub can be read or
    downloaded."""
    derived = cache_settings(os.environ, Path(tempfile.gettempdir()))
    is_local = True
    for variable, usual in COMPILED.items():
        path = Path(os.environ.get(variable) or derived.get(variable) or usual).expanduser()
        if (mount := mount_of(path)).is_shared:
            is_local = False
            own = "" if os.environ.get(variable) else " (jobs use the node's disk)"
            # A name that no one else can have taken before.
            remedy = f'export {variable}="$(mktemp -d)"'
            yield warning("caches", f"{variable} is {path}, on {mount.type}, shared by machines{own}", remedy)
    if is_local:
        yield ok("caches", f"{', '.join(COMPILED)}: on this machine")
    if any(model_config.id for model_config in subject.model_configs):
        yield _weights(cache_folder())


def _weights(home: Path) -> Finding:
    """Check the folder for downloads from the hub; it may be read-only."""
    name, remedy = "weights", "export HF_HOME=FOLDER, a folder that you can write, also in the job"
    try:
        os.scandir(home).close()
    except FileNotFoundError:
        if problem := _write_problem(_nearest(home)):
            return warning(name, f"{home} cannot be created ({problem})", remedy)
    except OSError as error:
        return failure(name, f"{home} cannot be read ({error.strerror})", remedy)
    return ok(name, f"weights from the hub are stored in {home} ({mount_of(home).type})")


def mount_of(path: Path) -> Mount:
    """Return the file system that a path is, or would be, on."""
    resolved = _nearest(path.absolute()).resolve()
    found = Mount(Path("/"), "unknown")
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        place = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4]))
        if resolved.is_relative_to(place) and len(place.parts) >= len(found.place.parts):
            found = Mount(place, after.split()[0])  # a later mount covers an earlier one
    return found


def _nearest(path: Path) -> Path:
    """Return the path itself, or the nearest folder above it that exists and that this user may see."""
    # `Path.exists` raises an error below folders of other users.
    return next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110


def _free_gb(folder: Path) -> float:
    return shutil.disk_usage(folder).free / 1e9


def _write_problem(folder: Path) -> str:
    """Write a file and remove it. Return why that failed, or nothing."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".speedrunner-doctor-") as file:
            file.write(bytes(WRITTEN))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return ""
