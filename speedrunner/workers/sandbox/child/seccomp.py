"""The filter of system calls, as a program of the kernel's packet filter (BPF). No process can remove it
again.

`system_calls.txt` lists the allowed calls. Others are refused with EPERM; calls by another architecture's
numbers end the process.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NamedTuple

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's audit numbers of the machines with known system calls."""

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # _REFUSE: with EPERM
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2

_Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true and if false, value."""


class SystemCall(NamedTuple):
    """An allowed call: its number on each machine that has it, and the condition on an argument."""

    numbers: dict[str, int]
    condition: str


class FilterRefused(Exception):
    """System calls cannot be filtered here, so untrusted code must not run."""


def allowed_calls() -> dict[str, SystemCall]:
    """Read `system_calls.txt`. Returns the calls by name."""
    # Without pathlib, which takes each child long to import.
    with open(f"{os.path.dirname(__file__)}/system_calls.txt", encoding="utf-8") as lines:  # noqa: PTH120, PTH123
        (_, *machines, _, _), *rows = (line.split(None, 4) for line in lines if line[0] != "#")
    calls = {}
    for name, *numbers, condition, _ in rows:
        known = {
            machine: int(number) for machine, number in zip(machines, numbers, strict=True) if number != "-"
        }
        calls[name] = SystemCall(known, condition)
    return calls


def install() -> None:
    """Confine this process to the allowed calls, permanently. Raises `FilterRefused`."""
    code = ctypes.create_string_buffer(program(os.uname().machine, os.getpid()))
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


def program(machine: str, pid: int) -> bytes:
    """Return the filter of a process on a machine, named as in `os.uname`. Raises `FilterRefused`."""
    if machine not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise FilterRefused(f"unsupported machine {machine}: only system calls of {known} are known")
    instructions: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for call in allowed_calls().values():
        if machine in call.numbers:
            verdict = _verdict(call.condition, pid)
            instructions += [(_JUMP_IF_EQUAL, 0, len(verdict), call.numbers[machine]), *verdict]
    instructions.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


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
