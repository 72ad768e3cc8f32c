"""The system calls that sandboxed code may make; every other one is refused.

Found by tracing skills and code sessions that read files, compute, sleep, import most of the standard library
and are interrupted. Nothing here makes a process, a socket or a file, or changes one, and all memory that it
can take is counted by the limit of the address space.
"""

from __future__ import annotations

from typing import NamedTuple

SELF = -1
"""Stands for the process's own id among the values of an argument."""

_WRITING = 0o3 | 0o100 | 0o1000 | 0o20000000
"""Flags of `openat`: O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, and the one of O_TMPFILE."""

_DUPLICATE, _GET_FLAGS, _SET_FLAGS, _DUPLICATE_CLOSED_ON_EXEC = 0, 1, 2, 1030
"""Commands of `fcntl` about the descriptor itself. Others are locks, leases, signals, sizes of pipes."""


class Only(NamedTuple):
    """What 32 bits of one argument (counted from 0) must be: one of `values`, or `without` any of these."""

    argument: int
    values: tuple[int, ...] = ()
    without: int = 0


class SystemCall(NamedTuple):
    """Numbers from the kernel's headers (asm/unistd_64.h, asm-generic/unistd.h); `None` where it has none."""

    x86_64: int | None
    aarch64: int | None
    why: str
    only: Only | None = None


ALLOWED = {
    "read": SystemCall(0, 63, "files, and what the host says"),
    "write": SystemCall(1, 64, "to the host; to nowhere for what is printed"),
    "openat": SystemCall(257, 56, "files, for reading", Only(2, without=_WRITING)),
    "close": SystemCall(3, 57, "files"),
    "lseek": SystemCall(8, 62, "files"),
    "pread64": SystemCall(17, 67, "headers of shared libraries, when one is imported"),
    "fcntl": SystemCall(
        72,
        25,
        "os.dup, and files that are closed on exec",
        Only(1, (_DUPLICATE, _GET_FLAGS, _SET_FLAGS, _DUPLICATE_CLOSED_ON_EXEC)),
    ),
    "newfstatat": SystemCall(262, 79, "imports, os.stat, os.path"),
    "fstat": SystemCall(5, 80, "the same, in C libraries before 2.33"),
    "stat": SystemCall(4, None, "the same"),
    "lstat": SystemCall(6, None, "the same"),
    "statx": SystemCall(332, 291, "the same, in newer libraries"),
    "access": SystemCall(21, None, "os.access"),
    "faccessat": SystemCall(269, 48, "os.access"),
    "faccessat2": SystemCall(439, 439, "os.access"),
    "readlink": SystemCall(89, None, "os.path.realpath"),
    "readlinkat": SystemCall(267, 78, "os.path.realpath"),
    "getdents64": SystemCall(217, 61, "imports, os.listdir"),
    "getcwd": SystemCall(79, 17, "relative paths"),
    "chdir": SystemCall(80, 49, "code sessions that enter a folder of theirs"),
    "brk": SystemCall(12, 214, "memory"),
    "mmap": SystemCall(9, 222, "memory, shared libraries"),
    "munmap": SystemCall(11, 215, "memory"),
    "mremap": SystemCall(25, 216, "memory: lists and texts that grow"),
    "mprotect": SystemCall(10, 226, "memory, shared libraries"),
    "futex": SystemCall(202, 98, "locks within the process"),
    "clock_gettime": SystemCall(228, 113, "time, CPU time"),
    "clock_getres": SystemCall(229, 114, "time.get_clock_info"),
    "gettimeofday": SystemCall(96, 169, "time, where the kernel lends no clock to processes"),
    "clock_nanosleep": SystemCall(230, 115, "time.sleep"),
    "nanosleep": SystemCall(35, 101, "the same, in older libraries"),
    "restart_syscall": SystemCall(219, 128, "sleep that goes on after the process was stopped"),
    "setitimer": SystemCall(38, 103, "the time limit's alarm"),
    "rt_sigaction": SystemCall(13, 134, "the alarm"),
    "rt_sigprocmask": SystemCall(14, 135, "the alarm"),
    "rt_sigreturn": SystemCall(15, 139, "the alarm"),
    "getpid": SystemCall(39, 172, "modules that look whether they were forked; abort"),
    "gettid": SystemCall(186, 178, "abort, locks"),
    "kill": SystemCall(62, 129, "ending itself, and nobody else", Only(0, (SELF,))),
    "tgkill": SystemCall(234, 131, "abort", Only(0, (SELF,))),
    "getrandom": SystemCall(318, 278, "os.urandom, secrets, uuid"),
    "getrusage": SystemCall(98, 165, "what it has used itself"),
    "uname": SystemCall(63, 160, "platform, uuid"),
    "exit": SystemCall(60, 93, "the end"),
    "exit_group": SystemCall(231, 94, "the end"),
}
