"""Where the parts of a model over several nodes find each other: a file of their job, then a connection each.

The batch script names the file to the server's job step and to that of its followers. Whoever has read it can
tell the words in it, so that neither side takes a stranger, who may have got the port since, for the other.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from serving.errors import ServerFailed

MEETING = "SPEEDRUNNER_MEETING"
"""Environment variable: the file's path, on a file system that all nodes of the job share."""

COME_S = 180.0
"""Longest wait for the followers: NFS may hide a new file from other nodes for a minute."""

ANSWER_S = 5.0
BACKLOG = 64
LONGEST_LINE = 1 << 20

Said = TypeVar("Said")


class Notice(msgspec.Struct, frozen=True):
    """The file: the port at which followers are awaited, and the words by which each side knows the other."""

    port: int
    followers: str
    launchers: str


class Arrival(msgspec.Struct, frozen=True):
    """What a follower says first."""

    word: str
    rank: int
    node: str


class Part(msgspec.Struct, frozen=True):
    """What it is told when all have come: the server's options, and its settings in the environment."""

    word: str
    arguments: list[str]
    environment: dict[str, str]


class Follower(msgspec.Struct, frozen=True):
    """One that has come: its node, and the connection that stands for as long as both sides serve."""

    node: str
    lifeline: socket.socket


def meeting_file(nodes: int) -> Path:
    """Where this job's followers look. Raises `ServerFailed` where no job has any."""
    if (file := os.environ.get(MEETING)) is None:
        raise ServerFailed(
            f"the model needs {nodes} nodes, and nothing waits for it on others: `speedrunner submit LIST"
            " cluster=...` makes a job of several nodes whose script sees to that"
        )
    return Path(file)


def network(own: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What vLLM, Gloo and NCCL find in their environment so that they meet where this node's address is.

    A site that has chosen an interface for Gloo or NCCL has done so for a reason, and keeps it.
    """
    names = [name for name, each in psutil.net_if_addrs().items() if own in (one.address for one in each)]
    chosen = {"GLOO_SOCKET_IFNAME": names[0], "NCCL_SOCKET_IFNAME": names[0]} if names else {}
    return {"VLLM_HOST_IP": own} | {name: environment.get(name, found) for name, found in chosen.items()}


@contextmanager
def gathered(file: Path, others: int, within_s: float = COME_S) -> Iterator[tuple[list[Follower], Notice]]:
    """The followers of all other nodes, by rank, once they have come; their connections end with the context.

    Raises:
        ServerFailed: they did not all come, or the file cannot be written.
    """
    came: dict[int, Follower] = {}
    try:
        with socket.create_server(("", 0), backlog=BACKLOG) as door:
            notice = Notice(door.getsockname()[1], secrets.token_hex(), secrets.token_hex())
            try:
                _write(file, notice)
                _receive(door, notice, others, came, within_s)
            except OSError as error:
                raise ServerFailed(f"the other nodes cannot be told in {file}: {error}") from None
            finally:
                file.unlink(missing_ok=True)  # nobody else is awaited
        yield [came[rank] for rank in sorted(came)], notice
    finally:
        for each in came.values():
            each.lifeline.close()


def say(lifeline: socket.socket, what: msgspec.Struct) -> None:
    """Send a record to the other side. Raises `OSError`."""
    lifeline.sendall(msgspec.json.encode(what) + b"\n")


def heard(lifeline: socket.socket, kind: type[Said]) -> Said:
    """The next record from the other side. Raises `OSError` or `msgspec.DecodeError`."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        if not (more := lifeline.recv(LONGEST_LINE)):
            break
        line += more
    return msgspec.json.decode(line, type=kind)


def joined(file: Path, head: str, rank: int, node: str) -> tuple[socket.socket, Part] | None:
    """A connection to the launcher that asks for followers now, and what it wants; `None` where none does.

    Args:
        head: address of its node.
    """
    try:
        notice = msgspec.json.decode(file.read_bytes(), type=Notice)
        lifeline = socket.create_connection((head, notice.port), ANSWER_S)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    try:
        say(lifeline, Arrival(notice.followers, rank, node))
        lifeline.settimeout(COME_S + ANSWER_S)
        part = heard(lifeline, Part)
        if hmac.compare_digest(part.word, notice.launchers):
            lifeline.settimeout(None)
            return lifeline, part
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        pass
    lifeline.close()
    return None


def _write(file: Path, notice: Notice) -> None:
    """Whole or not at all, for this user alone."""
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        fresh.touch(mode=0o600, exist_ok=False)
        fresh.write_bytes(msgspec.json.encode(notice))
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _receive(
    door: socket.socket, notice: Notice, others: int, came: dict[int, Follower], within_s: float
) -> None:
    deadline = time.monotonic() + within_s
    while len(came) < others:
        door.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            lifeline, _ = door.accept()
        except TimeoutError:
            missing = ", ".join(str(rank) for rank in range(1, others + 1) if rank not in came)
            raise ServerFailed(
                f"{len(came)} of {others} other nodes came within {within_s:g} s; missing: {missing} (0 is"
                " the job's first): the job's log says what ended there"
            ) from None
        arrival = _arrival(lifeline, notice)
        if arrival is None or not 1 <= arrival.rank <= others:
            lifeline.close()
            continue
        if (before := came.pop(arrival.rank, None)) is not None:  # it has given up that one
            before.lifeline.close()
        came[arrival.rank] = Follower(arrival.node, lifeline)


def _arrival(lifeline: socket.socket, notice: Notice) -> Arrival | None:
    lifeline.settimeout(ANSWER_S)
    try:
        arrival = heard(lifeline, Arrival)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return arrival if hmac.compare_digest(arrival.word, notice.followers) else None
