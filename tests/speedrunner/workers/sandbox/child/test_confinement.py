"""The filter of system calls: what its program says of each call, executed here as the kernel would."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from speedrunner.workers.sandbox.child import confinement

CALLS = confinement.allowed_calls()
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
PID = 2

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


def verdict(number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel does with a call."""
    call = [number, architecture or confinement.ARCHITECTURE, 0, 0]  # the instruction's address last
    for argument in (*arguments, *[0] * (6 - len(arguments))):
        call += [argument & 0xFFFFFFFF, argument >> 32 & 0xFFFFFFFF]
    program = list(struct.iter_unpack("=HBBI", confinement.filter_program(PID)))
    at, value = 0, 0
    while True:
        code, if_true, if_false, k = program[at]
        at += 1
        match code:
            case 0x20:
                value = call[k // 4]
            case 0x15:
                at += if_true if value == k else if_false
            case 0x45:
                at += if_true if value & k else if_false
            case 0x06:
                return int(k)


def test_what_is_not_in_the_list_is_refused() -> None:
    free = {call.number for call in CALLS.values() if call.condition == "-"}
    checked = {call.number for call in CALLS.values() if call.condition != "-"}
    for number in set(range(500)) - checked:
        assert verdict(number) == (ALLOW if number in free else REFUSE)


NEVER = (
    *("clone", "clone3", "fork", "vfork", "execve", "execveat", "ptrace", "socket", "socketpair", "connect"),
    *("setsid", "setpgid", "setpriority", "sched_setaffinity", "sched_setscheduler", "prlimit64"),
    *("timer_create", "timerfd_create", "pipe", "pipe2", "splice", "tee", "vmsplice"),
    *("memfd_create", "memfd_secret", "eventfd", "eventfd2", "shmget", "semget", "msgget"),
    *("mkdir", "mkdirat", "mknod", "mknodat", "rename", "renameat", "renameat2", "link", "linkat"),
    *("symlink", "symlinkat", "unlink", "unlinkat", "rmdir", "truncate", "ftruncate"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat", "flock", "inotify_init"),
    *("inotify_init1", "fanotify_init", "mount", "umount2", "io_uring_setup", "bpf", "userfaultfd"),
)
"""Calls with which code could harm others, or take memory and time that no limit counts."""


def test_what_could_harm_others_is_not_in_the_list() -> None:
    assert not {*NEVER} & {*CALLS}


def test_numbers_of_other_architectures_are_no_way_round() -> None:
    assert verdict(0, architecture=0x40000003) == KILL  # 32-bit x86
    assert verdict(0x40000000) == REFUSE  # x32


@pytest.mark.parametrize(
    ("name", "arguments", "allowed"),
    [
        ("openat", (0, 0, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW), True),
        ("openat", (0, 0, os.O_WRONLY), False),
        ("openat", (0, 0, os.O_RDONLY | os.O_CREAT), False),
        ("openat", (0, 0, 0x400000), False),
        ("openat", (0, 0, 1 << 32 | os.O_WRONLY), False),  # the kernel looks at 32 bits only
        ("fcntl", (3, 1030), True),
        ("fcntl", (3, 1024), False),  # F_SETLEASE
        ("fcntl", (3, 1031), False),  # F_SETPIPE_SZ
        ("kill", (PID, 9), True),
        ("kill", (1, 9), False),
        ("kill", (-1, 9), False),
        ("tgkill", (PID, PID, 6), True),
        ("tgkill", (1, 1, 6), False),
    ],
)
def test_arguments_count(name: str, arguments: tuple[int, ...], allowed: bool) -> None:
    assert verdict(CALLS[name].number, *arguments) == (ALLOW if allowed else REFUSE)


def test_numbers_are_those_of_the_kernels_header() -> None:
    if not HEADER.exists():
        pytest.skip("the kernel's headers are not installed")
    known = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", HEADER.read_text()))
    for name, call in CALLS.items():
        assert str(call.number) == known[name], name


def test_an_unknown_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="vax"))
    with pytest.raises(confinement.FilterRefused, match="unsupported machine vax: only system calls"):
        confinement.filter_system_calls()
