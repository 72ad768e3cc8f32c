"""A filter of system calls that sandboxed code has no use for, as the kernel's BPF program.

The second line of defence under bubblewrap, and the only one against fork bombs of root, whose processes
the kernel's own limit does not count. New processes, threads and sockets, namespaces, memory that no limit
covers and rarely used parts of the kernel are refused with EPERM.
"""

from __future__ import annotations

import platform
import struct

from speedrunner.sandbox.settings import INSTEAD, SandboxUnavailable

# Numbers from the kernel's headers (asm/unistd_64.h and asm-generic/unistd.h).
X86_64 = {
    "fork": 57,
    "vfork": 58,
    "clone": 56,
    "clone3": 435,
    "socket": 41,
    "socketpair": 53,
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
    "memfd_create": 319,
    "memfd_secret": 447,
    "shmget": 29,
    "msgget": 68,
    "semget": 64,
    "mq_open": 240,
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "chroot": 161,
    "unshare": 272,
    "setns": 308,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "open_by_handle_at": 304,
    "bpf": 321,
    "keyctl": 250,
    "add_key": 248,
    "request_key": 249,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "userfaultfd": 323,
    "perf_event_open": 298,
    "personality": 135,
    "kexec_load": 246,
    "init_module": 175,
    "finit_module": 313,
}
AARCH64 = {
    "clone": 220,
    "clone3": 435,
    "socket": 198,
    "socketpair": 199,
    "ptrace": 117,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
    "memfd_create": 279,
    "memfd_secret": 447,
    "shmget": 194,
    "msgget": 186,
    "semget": 190,
    "mq_open": 180,
    "mount": 40,
    "umount2": 39,
    "pivot_root": 41,
    "chroot": 51,
    "unshare": 97,
    "setns": 268,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "open_by_handle_at": 265,
    "bpf": 280,
    "keyctl": 219,
    "add_key": 217,
    "request_key": 218,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "userfaultfd": 282,
    "perf_event_open": 241,
    "personality": 92,
    "kexec_load": 104,
    "init_module": 105,
    "finit_module": 273,
}
MACHINES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}
"""By machine: the kernel's audit number of the architecture, and the refused system calls."""

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4  # in struct seccomp_data
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # _REFUSE: with EPERM
_X32 = 0x40000000  # a second set of numbers on x86_64


def program(machine: str | None = None) -> bytes:
    """Return the filter for a machine, as `platform.machine` calls it (by default this one).

    Raises:
        SandboxUnavailable: its system calls are not known here.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise SandboxUnavailable(
            f"skills can be isolated on {' and '.join(MACHINES)} only, not on {machine}; {INSTEAD}"
        )
    architecture, numbers = MACHINES[machine]
    refused = sorted(numbers.values())
    tests = [(_JUMP_IF_EQUAL, number) for number in refused]
    if machine == "x86_64":
        tests.insert(0, (_JUMP_IF_AT_LEAST, _X32))
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        # A hit jumps over the tests that follow and over the permission.
        *((test, len(tests) - index, 0, number) for index, (test, number) in enumerate(tests)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)
