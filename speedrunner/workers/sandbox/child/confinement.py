"""What a process gives up before it runs untrusted code: resources and system calls. It cannot undo that.

The filter of system calls is a program of the kernel's packet filter (BPF).
`system_calls.txt` lists the allowed calls on x86-64. Others are refused with EPERM; calls by another
architecture's numbers end the process.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Mapping
from typing import NamedTuple

MACHINE, ARCHITECTURE = "x86_64", 0xC000003E
"""The machine with the known system calls, and the kernel's audit number for it."""

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # _REFUSE: with EPERM
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 1, 22, 38, 2

_Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true and if false, value."""


class SystemCall(NamedTuple):
    """An allowed call: its number, and the condition on an argument."""

    number: int
    condition: str


class FilterRefused(Exception):
    """System calls cannot be filtered here, so untrusted code must not run."""


def limit_resources(limits: Mapping[str, int]) -> None:
    """Set resource limits, such as `{"NOFILE": 64}`, and drop the environment variables."""
    os.environ.clear()
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, allowed = resource.getrlimit(number)
        if allowed != resource.RLIM_INFINITY:
            value = min(value, allowed)
        resource.setrlimit(number, (value, value))


def die_with(parent: int) -> None:
    """Make the kernel end this process when its parent ends, in whatever way."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def allowed_calls() -> dict[str, SystemCall]:
    """Read `system_calls.txt`. Returns the calls by name."""
    # Without pathlib, which takes each child long to import.
    with open(f"{os.path.dirname(__file__)}/system_calls.txt", encoding="utf-8") as lines:  # noqa: PTH120, PTH123
        _, *rows = (line.split(None, 3) for line in lines if line[0] != "#")
    return {name: SystemCall(int(number), condition) for name, number, condition, _ in rows}


def filter_system_calls() -> None:
    """Confine this process to the allowed calls, permanently. Raises `FilterRefused`."""
    if (machine := os.uname().machine) != MACHINE:
        raise FilterRefused(f"unsupported machine {machine}: only system calls of {MACHINE} are known")
    code = ctypes.create_string_buffer(filter_program(os.getpid()))
    instructions = ctypes.create_string_buffer(
        struct.pack("@HP", len(code) // struct.calcsize("=HBBI"), ctypes.addressof(code))
    )
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 4]
    refused = prctl(_PR_SET_NO_NEW_PRIVS, 1, None, None, None)
    if refused or prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(instructions), None, None):
        raise FilterRefused(
            f"the kernel refuses the filter of system calls: {os.strerror(ctypes.get_errno())}"
        )


def filter_program(pid: int) -> bytes:
    """Return the filter of a process."""
    instructions: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, ARCHITECTURE),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for call in allowed_calls().values():
        verdict = _verdict(call.condition, pid)
        instructions += [(_JUMP_IF_EQUAL, 0, len(verdict), call.number), *verdict]
    instructions.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _verdict(condition: str, pid: int) -> list[_Instruction]:
    """Return instructions that allow a call if its argument fits the condition, and otherwise refuse it."""
    if condition == "-":
        return [(_RETURN, 0, 0, _ALLOW)]
    where, _, values = condition.partition("=")
    argument, _, bits = where.partition("&")
    if bits:
        tests, hit, missed = [(_JUMP_IF_ANY_BIT, int(bits, 0))], _REFUSE, _ALLOW
    else:
        numbers = [pid if value == "self" else int(value) for value in values.split(",")]
        tests, hit, missed = [(_JUMP_IF_EQUAL, number) for number in numbers], _ALLOW, _REFUSE
    return [
        (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * int(argument)),
        *((test, len(tests) - index, 0, value) for index, (test, value) in enumerate(tests)),
        (_RETURN, 0, 0, missed),
        (_RETURN, 0, 0, hit),
    ]
