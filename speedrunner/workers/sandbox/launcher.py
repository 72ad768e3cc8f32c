"""Run a command in separate namespaces, in which it sees only the things that are passed, read-only.

    python -I -S launcher.py [HOW PLACE SOURCE]... -- COMMAND...

HOW is `bind`, `device` or `empty`, as `speedrunner.workers.sandbox.view` explains, or `variable`: an
environment variable with the name PLACE. This script replaces bubblewrap if that is not installed. It needs
no right except that to user namespaces. As in bubblewrap, there are three processes:

- This one, outside. It waits and returns the command's status as a shell does (128 + signal).
- The first one inside. With its end the kernel ends all others inside. It ends with this process.
- The command, without any capability.

This script imports no other module of the project, so that it starts fast.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys

NAMESPACES = 0x10000000 | 0x20000 | 0x20000000 | 0x40000000 | 0x8000000 | 0x4000000 | 0x2000000
"""Flags of unshare(2): users, mounts, process ids, network, IPC, host name, control groups."""

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 0x20, 0x1000, 0x4000, 0x80000
MNT_DETACH = 2
PIVOT_ROOT = 155
"""Number of the system call on x86-64."""

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAPABILITIES_VERSION = 0x20080522

BASE = "/tmp"
"""A folder that every system has. The new root is mounted there, invisible outside."""

OUTSIDE = "/outside"
"""Place of the old root in the new one, until everything is mounted."""

ESCAPES = {rb"\040": b" ", rb"\011": b"\t", rb"\012": b"\n", rb"\134": b"\\"}
"""The kernel's escapes for these characters in its table of mounts."""

LIBC = ctypes.CDLL(None, use_errno=True)


def main(words: list[str]) -> int:
    """Run a command to its end (see the module's docstring). Returns its status. Raises `OSError`."""
    end = words.index("--")
    things = list(zip(words[:end:3], words[1:end:3], words[2:end:3], strict=True))
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _unshare()
    if inside := os.fork():
        _drop_capabilities()
        _die_with_parent()
        return _status(inside)
    _die_with_parent()
    _call("sethostname", b"sandbox", 7)
    _enter([each for each in things if each[0] != "variable"])
    _drop_capabilities()
    if command := os.fork():
        return _status(command)
    variables = {name: value for how, name, value in things if how == "variable"}
    os.execve(words[end + 1], words[end + 1 :], variables)


def _call(function: str, *arguments: object, path: str | None = None) -> None:
    """Call a function of the C library. If it returns -1, raises `OSError` with the path."""
    if getattr(LIBC, function)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}", path)


def _die_with_parent() -> None:
    # If the parent has already ended, its end of the command's input pipe is closed, which ends the command.
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _status(pid: int) -> int:
    """Wait for a process. Returns its status as a shell would."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - code if code < 0 else code


def _unshare() -> None:
    """Leave all namespaces, as the same user, who is the only one in the new ones."""
    maps = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
    _call("unshare", NAMESPACES)
    _write("/proc/self/setgroups", "deny")  # otherwise only root may write the other two
    for name, number in maps.items():
        _write(f"/proc/self/{name}", f"{number} {number} 1")


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        error.filename = path
        raise


def _enter(things: list[tuple[str, str, str]]) -> None:
    """Create a root with only the passed things, change to it, and leave the old one permanently."""
    _mount(None, "/", MS_REC | MS_SLAVE)  # hides these mounts from the outside
    _mount("tmpfs", BASE, MS_NOSUID | MS_NODEV, "mode=0755")
    os.mkdir(BASE + OUTSIDE)
    _call("syscall", PIVOT_ROOT, BASE.encode(), (BASE + OUTSIDE).encode())
    os.chdir("/")
    for how, place, source in things:
        if how == "empty":
            _mount("tmpfs", place, MS_NOSUID | MS_NODEV, "mode=0755")
            continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.isdir(OUTSIDE + source):
            os.makedirs(place, exist_ok=True)
        else:
            open(place, "x").close()
        _mount(OUTSIDE + source, place, MS_BIND | MS_REC)
    mounted = _list_mounts()
    _call("umount2", OUTSIDE.encode(), MNT_DETACH)
    os.rmdir(OUTSIDE)
    devices = {place for how, place, _ in things if how == "device"}
    for path, kept in mounted:
        if path not in devices:
            _make_read_only(path, kept)


def _mount(source: str | None, place: str, flags: int, data: str | None = None) -> None:
    _call(
        "mount",
        source and os.fsencode(source),
        os.fsencode(place),
        b"tmpfs",  # the type, for a new file system
        ctypes.c_ulong(flags),
        data and data.encode(),
        path=place,
    )


def _list_mounts() -> list[tuple[str, int]]:
    """Return all mounts of the new root, including those below the folders that are shown, with the flags
    that must be kept: the kernel does not allow their removal. It keeps flags about times by itself."""
    found = []
    with open(f"{OUTSIDE}/proc/self/mountinfo", "rb") as table:
        for line in table:
            _, _, _, _, path, options, *_ = line.split(b" ")
            for escape, meant in ESCAPES.items():
                path = path.replace(escape, meant)
            name = os.fsdecode(path)
            if name != OUTSIDE and not name.startswith(OUTSIDE + "/"):
                found.append((name, MS_NOEXEC if b"noexec" in options.split(b",") else 0))
    return found


def _make_read_only(path: str, kept: int) -> None:
    try:
        _mount(None, path, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)
    except OSError as error:  # its folder cannot be entered, or it was removed or is below another mount
        if error.errno not in (errno.EACCES, errno.ENOENT):
            raise


def _drop_capabilities() -> None:
    """Give up all capabilities of the new user namespace, for this process and its descendants."""
    number = 0
    while LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())


if __name__ == "__main__":
    try:
        exit_status = main(sys.argv[1:])
    except OSError as error:
        print(error.strerror, *([f"({error.filename})"] if error.filename else []), file=sys.stderr)
        exit_status = 1
    sys.stderr.flush()
    os._exit(exit_status)
