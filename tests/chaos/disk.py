"""A disk that remembers each operation on a folder, and what of it a power cut would leave.

`watch` replaces the functions of `os` through which the store changes files. Each operation below the folder
is appended to a log before it happens, so the log is complete even if the process is killed in the middle of
one. An operation may also fail, write a part only, or be the process's last: see `Trigger`.

What a power cut leaves (`surviving`) follows POSIX, which promises no more:

- Of the writes and truncations of a file since its last `fsync`, a prefix survives, chosen at random for each
  file.
- Of the changes of names in a folder (creations, renames, removals) since the folder's last `fsync`, a prefix
  survives, chosen at random for each folder. A rename to another folder counts in both.
- What earlier processes have written counts like what this one has: their logs are read before its log.

Blocks that are written out of order within one file, and firmware that ignores `fsync`, are not modelled.
"""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

STRUCK = "struck"
"""Name of a file next to a log, which is there once an effect has happened."""

Effect = Literal["kill", "kill_after", "torn", "stop", "jump", "ENOSPC", "EDQUOT", "EIO", "EROFS"]

Kind = Literal["change", "sync", "read"]


@dataclass(frozen=True)
class Trigger:
    """What happens at one operation.

    Attributes:
        number: of the operation, from 0.
        effect: `kill` before it, `kill_after` it, `torn`: killed after a part of a write; `stop`: SIGTERM;
            `jump`: the clock jumps; otherwise an error.
        lasting: whether all later operations of that kind get the error, too.
        at: the kind of operations that count: changes, calls of `fsync`, or files that are opened to be read.
        name: if given, only operations with this `name_operation` count.
        jump_s: seconds by which the clock jumps.
    """

    number: int
    effect: Effect
    lasting: bool = False
    at: Kind = "change"
    name: str | None = None
    jump_s: float = 0.0


class _Watch:
    def __init__(self, folder: Path, log: Path, trigger: Trigger | None) -> None:
        self.folder = str(folder.resolve())
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._struck = log.with_name(STRUCK)
        self._trigger = trigger
        self._count = 0
        self._pid = os.getpid()

    def covers(self, path: str) -> bool:
        """Whether a path is below the folder, in this process; its children write no records."""
        return path.startswith(self.folder + "/") and os.getpid() == self._pid

    def note(self, kind: str, path: str, data: bytes = b"", **more: Any) -> bytes:
        """Log an operation that is about to happen. Returns the data to write; may end the process, or
        raise."""
        found = self._trigger
        if found is None or not self._counts(kind, path, found):
            self._append(kind, path, data, more)
            return data
        number, self._count = self._count, self._count + 1
        if number < found.number or (number > found.number and not found.lasting):
            self._append(kind, path, data, more)
            return data
        os.close(_OPEN(self._struck, os.O_CREAT, 0o600))
        match found.effect:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGTERM)
                self._append(kind, path, data, more)
            case "jump":
                _change_clock(found.jump_s)
                self._append(kind, path, data, more)
            case "torn" if kind == "write" and len(data) > 1:
                part = data[: 1 + number % (len(data) - 1)]
                self._append(kind, path, part, more)
                return part
            case "kill_after" | "torn":
                self._append(kind, path, data, more)
            case name:
                code = getattr(errno, name)
                raise OSError(code, os.strerror(code), path)
        return data

    def done(self) -> None:
        """End the process if the operation that has just happened is its last."""
        found = self._trigger
        if found is not None and self._count - 1 == found.number and found.effect in ("kill_after", "torn"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _counts(self, kind: str, path: str, trigger: Trigger) -> bool:
        name = trigger.name
        return kind_of(kind) == trigger.at and (
            name is None or name == name_operation(kind, path.removeprefix(self.folder))
        )

    def failed(self, kind: str, path: str) -> None:
        """Log that the operation of this kind and path that was logged last has failed."""
        self._append("failed", path, b"", {"what": kind})

    def _append(self, kind: str, path: str, data: bytes, more: dict[str, Any]) -> None:
        text = base64.b64encode(data).decode()
        line = json.dumps({"kind": kind, "path": path, "data": text, **more}) + "\n"
        _WRITE(self._log, line.encode())


def kind_of(operation: str) -> Kind:
    """Return what an operation counts as."""
    return "sync" if operation == "fsync" else "read" if operation == "read" else "change"


def name_operation(operation: str, path: str) -> str:
    """Return an operation with the path below the run, without the numbers that tell similar files apart."""
    return f"{operation} {re.sub('[0-9a-f]{16,}|[0-9]+', '#', path)}"


def _change_clock(seconds: float) -> None:
    true = time.time
    time.time = lambda: true() + seconds


_OPEN, _WRITE, _TRUNCATE, _FSYNC, _OPEN_FILE = os.open, os.write, os.ftruncate, os.fsync, io.open


def watch(folder: Path, log: Path, trigger: Trigger | None) -> None:
    """Watch everything that this process changes below a folder, for the rest of its life."""
    seen = _Watch(folder, log, trigger)

    def path_of(path: Any, dir_fd: int | None = None) -> str:
        text = os.fsdecode(path)
        if dir_fd is not None:
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        return os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(text))), os.path.basename(text))

    def of_descriptor(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = path_of(path, dir_fd)
        if flags & os.O_CREAT and seen.covers(name) and not os.path.lexists(name):
            seen.note("create", name)
            descriptor = _OPEN(path, flags, mode, dir_fd=dir_fd)
            seen.done()
            return descriptor
        if flags & os.O_TRUNC and seen.covers(name) and os.path.exists(name):
            seen.note("truncate", name, size=0)
        if not flags & (os.O_WRONLY | os.O_RDWR) and seen.covers(name) and os.path.isfile(name):
            seen.note("read", name)
        return _OPEN(path, flags, mode, dir_fd=dir_fd)

    def opened_as_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        """Open as `Path.open` does, which calls no function of `os`."""
        if mode in ("r", "rb") and not isinstance(file, int):
            name = path_of(file)
            if seen.covers(name) and os.path.isfile(name):
                seen.note("read", name)
        return _OPEN_FILE(file, mode, *args, **options)

    def written(descriptor: int, data: Any) -> int:
        name = of_descriptor(descriptor)
        if not seen.covers(name):
            return _WRITE(descriptor, data)
        content = seen.note(
            "write", name, bytes(data), at=os.fstat(descriptor).st_size
        )  # all are appended to, or new
        count = _WRITE(descriptor, content)
        seen.done()
        return count

    def truncated(descriptor: int, size: int) -> None:
        name = of_descriptor(descriptor)
        if not seen.covers(name):
            return _TRUNCATE(descriptor, size)
        seen.note("truncate", name, size=size)
        _TRUNCATE(descriptor, size)
        seen.done()

    def changing(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *args: Any, **options: Any) -> Any:
            name = path_of(path, options.get("dir_fd", options.get("src_dir_fd")))
            if not seen.covers(name):
                return function(path, *args, **options)
            more = {"target": path_of(args[0], options.get("dst_dir_fd"))} if kind == "rename" else {}
            seen.note(kind, name, **more)
            try:
                result = function(path, *args, **options)
            except OSError:
                seen.failed(kind, name)
                raise
            seen.done()
            return result

        return change

    def synced(descriptor: int) -> None:
        name = of_descriptor(descriptor)
        if seen.covers(name) or name == seen.folder:
            seen.note("fsync", name)
        _FSYNC(descriptor)

    io.open = opened_as_file
    os.open, os.write, os.ftruncate, os.fsync = opened, written, truncated, synced  # type: ignore[assignment]
    for name, kind in (
        *(("rename", "rename"), ("replace", "rename"), ("unlink", "unlink"), ("remove", "unlink")),
        *(("rmdir", "rmdir"), ("mkdir", "mkdir")),
    ):
        setattr(os, name, changing(kind, getattr(os, name)))


@dataclass
class Disk:
    """The content of a folder: names with contents, and folders."""

    names: dict[str, int] = field(default_factory=dict)
    contents: dict[int, bytearray] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, folder: Path) -> Disk:
        """The folder as it is."""
        disk = cls()
        for path in sorted(folder.rglob("*")):
            name = str(path)
            if path.is_dir():
                disk.folders.add(name)
            else:
                disk.names[name] = len(disk.contents)
                disk.contents[len(disk.contents)] = bytearray(path.read_bytes())
        return disk

    def write(self, folder: Path, was: str) -> None:
        """Create the folder with this content, except for what is in a lost folder.

        Args:
            was: where the folder was read.
        """
        folder.mkdir(mode=0o700)
        there = {was}
        for name in sorted(self.folders):
            if os.path.dirname(name) in there:
                there.add(name)
                (folder / os.path.relpath(name, was)).mkdir(mode=0o700)
        for name, number in self.names.items():
            if os.path.dirname(name) in there:
                path = folder / os.path.relpath(name, was)
                path.write_bytes(bytes(self.contents[number]))
                path.chmod(0o600)

    @property
    def files(self) -> dict[str, bytes]:
        """The content of each file, by name."""
        return {name: bytes(self.contents[number]) for name, number in self.names.items()}


def count_operations(log: Path, folder: Path) -> dict[Kind, Counter[str]]:
    """How many operations a log has, by kind and `name_operation`."""
    found: dict[Kind, Counter[str]] = {"change": Counter(), "sync": Counter(), "read": Counter()}
    for each in _read(log):
        if (operation := each["kind"]) != "failed":
            name = name_operation(operation, each["path"].removeprefix(str(folder.resolve())))
            found[kind_of(operation)][name] += 1
    return found


def operations(log: Path) -> list[dict[str, Any]]:
    """What a log has of changes and calls of `fsync` that did not fail; a kill may have cut its last line, of
    an operation that did not happen."""
    found = list[dict[str, Any]]()
    for each in _read(log):
        if each["kind"] == "failed":
            asked = (each["what"], each["path"])
            del found[max(n for n, one in enumerate(found) if (one["kind"], one["path"]) == asked)]
        elif each["kind"] != "read":
            found.append(each)
    return found


def _read(log: Path) -> list[dict[str, Any]]:
    lines = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines]


def surviving(
    before: Disk, done: list[dict[str, Any]], seed: int | None = None, *, least: bool = False
) -> Disk:
    """What is on the disk after these operations.

    Args:
        seed: after a power cut that follows them.
        least: after the worst power cut.
    """
    numbers, lost = _files(before, done), set[int]()
    if seed is not None or least:
        rng = random.Random(seed)
        lost = _lost(done, numbers, (lambda count: 0) if least else lambda count: rng.randint(0, count))
    disk = Disk(
        dict(before.names),
        {number: bytearray(content) for number, content in before.contents.items()},
        set(before.folders),
    )
    for place, (each, number) in enumerate(zip(done, numbers, strict=True)):
        if place not in lost:
            _apply(disk, each, number)
    return disk


def _files(before: Disk, done: list[dict[str, Any]]) -> list[int | None]:
    """The number of the file that each operation is about; names may change hands."""
    names, found = dict(before.names), list[int | None]()
    following = max(before.contents, default=-1) + 1
    for each in done:
        name = each["path"]
        if each["kind"] == "create":
            names[name], following = following, following + 1
        found.append(names.get(name))
        if each["kind"] == "unlink":
            names.pop(name, None)
        if each["kind"] == "rename":
            for path in [path for path in names if path == name or path.startswith(f"{name}/")]:
                names[each["target"] + path[len(name) :]] = names.pop(path)
    return found


def _lost(done: list[dict[str, Any]], numbers: list[int | None], survive: Callable[[int], int]) -> set[int]:
    """The places of the operations that do not survive a power cut."""
    pending: dict[object, list[int]] = {}
    for place, (each, number) in enumerate(zip(done, numbers, strict=True)):
        name = each["path"]
        if each["kind"] == "fsync":
            pending.pop(name if number is None else number, None)
        elif each["kind"] in ("write", "truncate"):
            pending.setdefault(number, []).append(place)
        else:
            for path in (name, *([each["target"]] if "target" in each else [])):
                pending.setdefault(os.path.dirname(path), []).append(place)
    return {place for places in pending.values() for place in places[survive(len(places)) :]}


def _apply(disk: Disk, each: dict[str, Any], number: int | None) -> None:
    name = each["path"]
    match each["kind"]:
        case "create":
            assert number is not None
            disk.names[name] = number
            disk.contents.setdefault(number, bytearray())
        case "write" if number is not None:
            content = disk.contents.setdefault(number, bytearray())
            data = base64.b64decode(each["data"])
            content.extend(bytes(max(each["at"] - len(content), 0)))
            content[each["at"] : each["at"] + len(data)] = data
        case "truncate" if number is not None:
            content = disk.contents.setdefault(number, bytearray())
            del content[each["size"] :]
            content.extend(bytes(each["size"] - len(content)))
        case "unlink":
            disk.names.pop(name, None)
        case "mkdir":
            disk.folders.add(name)
        case "rmdir":
            disk.folders.discard(name)
        case "rename":
            _rename(disk, name, each["target"])


def _rename(disk: Disk, name: str, target: str) -> None:
    if name in disk.names:
        disk.names[target] = disk.names.pop(name)
        return
    moved = {path for path in disk.folders if path == name or path.startswith(f"{name}/")}
    disk.folders = (disk.folders - moved) | {target + path[len(name) :] for path in moved}
    for path in [path for path in disk.names if path.startswith(f"{name}/")]:
        disk.names[target + path[len(name) :]] = disk.names.pop(path)
