"""The filter of system calls: what its program says of each call, executed here as the kernel would."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from speedrunner.workers.sandbox.child import seccomp

CALLS = seccomp.allowed_calls()
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
PID = 2

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ALIASES = {"newfstatat": "fstatat"}
"""Where the generic header has another name."""


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel does with a call."""
    call = [number, architecture or seccomp.ARCHITECTURES[machine], 0, 0]  # the instruction's address last
    for argument in (*arguments, *[0] * (6 - len(arguments))):
        call += [argument & 0xFFFFFFFF, argument >> 32 & 0xFFFFFFFF]
    program = list(struct.iter_unpack("=HBBI", seccomp.program(machine, PID)))
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


@pytest.fixture(params=seccomp.ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_is_not_in_the_list_is_refused(machine: str) -> None:
    free = {each.numbers.get(machine) for each in CALLS.values() if each.condition == "-"}
    checked = {each.numbers[machine] for each in CALLS.values() if each.condition != "-"}
    for number in set(range(500)) - checked:
        assert verdict(machine, number) == (ALLOW if number in free else REFUSE)


def test_numbers_of_other_architectures_are_no_way_round(machine: str) -> None:
    assert verdict(machine, 0, architecture=0x40000003) == KILL  # 32-bit x86
    assert verdict(machine, 0x40000000) == REFUSE  # x32


@pytest.mark.parametrize(
    ("name", "arguments", "allowed"),
    [
        ("openat", (0, 0, os.O_RDONLY), True),
        ("openat", (0, 0, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW), True),
        ("openat", (0, 0, os.O_WRONLY), False),
        ("openat", (0, 0, os.O_RDWR), False),
        ("openat", (0, 0, os.O_RDONLY | os.O_CREAT), False),
        ("openat", (0, 0, os.O_RDONLY | os.O_TRUNC), False),
        ("openat", (0, 0, 0x400000), False),
        ("openat", (0, 0, 1 << 32 | os.O_WRONLY), False),  # the kernel looks at 32 bits only
        ("fcntl", (3, 1030), True),
        ("fcntl", (3, 1), True),
        ("fcntl", (3, 6), False),  # F_SETLK
        ("fcntl", (3, 8), False),  # F_SETOWN
        ("fcntl", (3, 37), False),  # F_OFD_SETLK
        ("fcntl", (3, 1024), False),  # F_SETLEASE
        ("fcntl", (3, 1031), False),  # F_SETPIPE_SZ
        ("kill", (PID, 9), True),
        ("kill", (1, 9), False),
        ("kill", (0, 9), False),
        ("kill", (-1, 9), False),
        ("tgkill", (PID, PID, 6), True),
        ("tgkill", (1, 1, 6), False),
    ],
)
def test_arguments_count(machine: str, name: str, arguments: tuple[int, ...], allowed: bool) -> None:
    number = CALLS[name].numbers[machine]
    assert verdict(machine, number, *arguments) == (ALLOW if allowed else REFUSE)


def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("the kernel's headers are not installed")
    pattern = r"#define __NR(?:3264)?_(\w+)\s+(\d+)"
    known = {name: int(number) for name, number in re.findall(pattern, HEADERS[machine].read_text())}
    for name, call in CALLS.items():
        theirs = known.get(name) if machine == "x86_64" else known.get(ALIASES.get(name, name))
        assert call.numbers.get(machine) == theirs, name


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(
        seccomp.FilterRefused, match="unsupported machine vax: only system calls of x86_64 and aarch64"
    ):
        seccomp.program("vax", PID)
